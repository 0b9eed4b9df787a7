// A crash: of an ended process, or of one that is held at it, where Python can still be asked in each frame.

import {button, empty, h, show, words} from '/dom.js';
import {list, query, read, readIfThere, write} from '/probe.js';
import {linesOf, code} from '/source.js';
import {value} from '/values.js';
import {tell} from '/views/stacks.js';

// A frame opens to what it binds, its source, and a box to ask, where somebody can answer.
async function frame(directory, depth, place, answers, signal) {
    const inside = `${directory}/crash/frames/${depth}`;
    const [bound, source] = await Promise.all([readIfThere(`${inside}/locals`, signal), readIfThere(`${inside}/source`, signal)]);
    const asked = h('input', {type: 'text', 'aria-label': `Expression in frame ${depth}`, placeholder: 'an expression, in this frame', spellcheck: 'false'}), reply = h('pre');
    const ask = async () => {
        try {
            reply.textContent = await write(`${inside}/eval`, asked.value + '\n', {signal});
            reply.className = '';
        } catch (error) {
            reply.textContent = error.message;
            reply.className = 'bad';
        }
    };
    asked.addEventListener('keydown', event => event.key === 'Enter' && ask());
    const lines = linesOf(source);
    return h('details', {open: depth === '0'}, h('summary', {class: 'mono'}, `#${depth} ${source.split('\n')[0] || place}`), h('div', {class: 'inside'},
        h('div', {class: 'value'}, bound.split('\n').filter(Boolean).map(line => {
            const cut = line.indexOf(' = ');
            return cut < 0 ? h('div', {class: 'leaf dim'}, line) : value(line.slice(0, cut), '', line.slice(cut + 3), `${depth}/${line.slice(0, cut)}`);
        })),
        lines.length ? code(lines) : null, answers ? [h('div', {class: 'row'}, asked, button('Run', ask)), reply] : null));
}

export async function crash(root, {directory, signal, again}) {
    const lives = /^\d+$/.test(directory);
    const [status, traceback, stacks] = await Promise.all(['status', 'crash/traceback', 'crash/backtrace'].map(name => readIfThere(`${directory}/${name}`, signal)));
    if (!lives)
        root.append(h('pre', {}, status || await read(`${directory}/status`, signal)));
    if (!traceback && !stacks) {
        const said = h('div');
        const record = verb => write(`${directory}/ctl`, verb + '\n', {signal}).then(text => show(said, h('pre', {}, text)), error => show(said, words(error)));
        root.append(empty('It left no crash. ', lives ? 'To have the next one kept, or its thread held there:' : 'Before the next one: on-crash record, in the view crash of the running process.'),
            lives ? h('div', {class: 'row'}, ['on-crash record', 'on-crash stop', 'on-crash off'].map(verb => button(verb, () => record(verb)))) : '', said);
        return;
    }
    const tid = /^Exception in thread (\d+)/.exec(traceback)?.[1];
    const [held] = lives && tid ? await query(directory, `SELECT tid FROM threads WHERE tid = ${tid} AND state = 'held'`, signal) : [];
    if (held)
        root.append(h('p', {class: 'held', role: 'status'}, (await readIfThere(`${directory}/threads/${tid}/ctl`, signal)).split('\n')[0]),
            h('div', {class: 'row'}, button('continue', () => tell(directory, tid, 'continue', signal).then(again, error => root.append(words(error))), {class: 'main'}),
                h('small', {}, 'The exception then ends the thread, as it would have.')));
    root.append(h('h2', {}, 'Crash'), h('pre', {class: 'bad'}, traceback));
    const frames = traceback ? await list(`${directory}/crash/frames`, signal).catch(() => []) : [];
    const depths = frames.map(name => name.replace('/', '')).sort((a, b) => a - b);
    if (depths.length)
        root.append(h('h2', {}, 'Frames'));
    const places = [...traceback.matchAll(/^ +File "(.*)", line (\d+), in (.*)$/gm)].map(([, file, line, func]) => `${func} (${file}:${line})`).reverse();
    root.append(...await Promise.all(depths.map(depth => frame(directory, depth, places[depth] ?? '', held, signal))));
    if (stacks)
        root.append(h('h2', {}, 'All threads'), h('pre', {}, stacks));
}
