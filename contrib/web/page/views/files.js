// All files of a directory of the mount, whatever they are: what has no view of its own is read here.

import {button, h, show, words} from '/dom.js';
import {list, read, write} from '/probe.js';

const COMMANDS = ['eval', 'ctl', 'query', 'breakpoints'];

export async function files(root, {directory, rest, signal, link}) {
    const isDirectory = rest === '' || rest.endsWith('/'), inner = rest.replace(/\/$/, '');
    const folder = isDirectory ? inner : inner.split('/').slice(0, -1).join('/');
    const path = name => [directory, name].filter(Boolean).join('/');
    const names = h('nav', {'aria-label': 'Files'}), text = h('div');
    root.append(h('div', {class: 'files'}, names, text));

    const entry = (name, label = name) => h('a', {href: link('files', [folder, name].filter(Boolean).join('/')), 'aria-current': [folder, name].filter(Boolean).join('/') === rest ? 'page' : null}, label);
    const up = folder.includes('/') ? folder.replace(/\/[^/]*$/, '/') : '';
    list(path(folder), signal).then(found => show(names, folder ? h('a', {href: link('files', up)}, '../') : null, found.map(name => entry(name))))
        .catch(error => signal.aborted || show(names, words(error)));

    if (isDirectory) {
        text.append(h('p', {class: 'dim'}, 'Choose a file. Each opening shows one moment.'));
        return;
    }
    const name = inner.split('/').at(-1), body = h('pre', {tabindex: '0'});
    const load = async () => {
        try {
            body.textContent = name === 'events' ? 'See the view events.' : await read(path(inner), signal) || '(it is empty)';
        } catch (error) {
            if (!signal.aborted)
                body.replaceChildren(words(error));
        }
    };
    text.append(h('div', {class: 'row'}, h('b', {class: 'mono'}, path(inner)), button('Read again', load)));
    if (COMMANDS.includes(name)) {
        const line = h('textarea', {'aria-label': `What to write to ${name}`, spellcheck: 'false'});
        const run = append => write(path(inner), line.value && line.value + '\n', {signal, append}).then(said => { body.textContent = said || '(it said nothing)'; }, error => body.replaceChildren(words(error)));
        text.append(line, h('div', {class: 'row'}, button('Write (>)', () => run(false)), name === 'breakpoints' ? button('Add (>>)', () => run(true)) : null));
    }
    text.append(body);
    await load();
}
