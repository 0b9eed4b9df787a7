// Python in the process: in __main__, or as a thread's stack sees the names.

import {box, button, h, show} from '/dom.js';
import {query, write} from '/probe.js';

const PAST = 50;

export async function evaluate(root, {directory, signal}) {
    const main = h('option', {value: `${directory}/eval`}, 'in __main__'), where = h('select', {'aria-label': 'Where'}, main), past = h('div', {class: 'log', role: 'log'});
    const text = box({'aria-label': 'Python', placeholder: 'an expression, or a script'}, run);
    let running = null;
    const stop = button('Stop it', () => running?.abort(), {disabled: true});
    const history = [];

    async function run() {
        if (running || !text.value.trim())
            return;
        const asked = text.value, reply = h('pre', {class: 'dim'}, 'runs …');
        running = new AbortController();
        stop.disabled = false;
        past.prepend(h('div', {}, h('pre', {}, asked.replace(/^/gm, '>>> ')), reply));
        past.lastChild && past.childElementCount > PAST && past.lastChild.remove();
        history.push(asked);
        try {
            reply.textContent = await write(where.value, asked + '\n', {signal: AbortSignal.any([running.signal, signal])}) || '(it said nothing)';
            reply.className = '';
        } catch (error) {
            reply.textContent = error.name === 'AbortError' ? 'interrupted' : error.message;
            reply.className = 'bad';
        }
        running = null;
        stop.disabled = true;
    }

    text.addEventListener('keydown', event => {
        if (event.key === 'ArrowUp' && !text.value && history.length)
            text.value = history.at(-1);
    });
    root.append(h('div', {class: 'note'}, 'What you write here runs in the process. Everywhere else looking runs nothing.'), text,
        h('div', {class: 'row'}, button('Run', run, {class: 'main'}), stop, where, h('small', {}, 'Ctrl-Enter runs it, ↑ in the empty box brings the last one back')), past);
    const threads = await query(directory, 'SELECT tid, thread FROM threads WHERE depth > 0', signal);
    where.append(...threads.map(one => h('option', {value: `${directory}/threads/${one.tid}/eval`}, `as ${one.thread} (${one.tid}) sees it`)));
    text.focus();
}
