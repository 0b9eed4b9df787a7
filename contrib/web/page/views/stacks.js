// All threads, live; a frame opens to its variables and its source.

import {base, button, empty, h, show, tick} from '/dom.js';
import {query, readIfThere, write, writeHere} from '/probe.js';
import {listing} from '/source.js';
import {variables} from '/values.js';

// What a held thread can be told, with its key.
export const VERBS = {continue: 'c', next: 'n', step: 's', 'step own': 'o', finish: 'f', return: 'r', until: 'u'};

export const STACKS = `SELECT tid, t.thread AS thread, is_main, state, holds_gil, wchan, stands, number, b.depth AS depth, func, file, lineno, frame_type, module
    FROM threads AS t LEFT JOIN backtrace AS b USING (tid) ORDER BY state <> 'held', state <> 'running', state <> 'gil-wait', tid, number`;

// [{tid, thread, state, ..., frames: [row, ...]}, ...]
export function threadsOf(rows) {
    const threads = new Map();
    for (const row of rows) {
        if (!threads.has(row.tid))
            threads.set(row.tid, {...row, frames: []});
        if (row.number != null)
            threads.get(row.tid).frames.push(row);
    }
    return [...threads.values()];
}

const stateOf = thread => [thread.state, thread.holds_gil ? 'gil' : null, thread.state === 'idle' ? thread.wchan : null,
    thread.stands == null ? null : `for ${thread.stands.toFixed(1)} s`].filter(Boolean).join(', ');
export const stateClass = state => ({held: 'held', running: 'good'})[state] ?? 'dim';

// What a thread is told to do; resolves when it has got there. What holds it again does so as long as the page is open.
export const tell = (directory, tid, verb, signal) => verb === 'continue' ? write(`${directory}/threads/${tid}/ctl`, 'continue\n', {signal}) :
    writeHere(`${directory}/threads/${tid}/ctl`, `here ${verb}\n`, {signal});

export async function stacks(root, {directory, signal, every}) {
    const opened = new Set();
    let native = false, live = true;
    const body = h('div');
    root.append(h('div', {class: 'row'},
        tick('live', live, on => { live = on; }),
        tick('C frames', native, on => { native = on; draw(); })), body);

    async function inside(thread, frame, key) {
        const [rows, source] = await Promise.all([
            query(directory, `SELECT name, type, value FROM locals WHERE tid = ${thread.tid} AND depth = ${frame.depth}`, signal),
            readIfThere(`${directory}/threads/${thread.tid}/frames/${frame.depth}/source`, signal)]);
        return h('div', {class: 'inside'}, variables(rows, key), source ? listing(source) : h('p', {class: 'dim'}, 'Its source is not on this machine.'));
    }

    async function draw() {
        const threads = threadsOf(await query(directory, STACKS, signal));
        const shown = new Map(); // equal idle stacks, once
        for (const thread of threads) {
            const key = thread.state === 'idle' ? thread.frames.map(one => `${one.func} ${one.file} ${one.lineno}`).join() : `${thread.tid}`;
            shown.set(key, [...shown.get(key) ?? [], thread]);
        }
        const made = [];
        for (const [thread, ...others] of shown.values()) {
            const frames = thread.frames.filter(one => native || one.frame_type !== 'Native');
            const lines = [];
            for (const frame of frames) {
                const key = `${thread.tid}/${frame.depth}`, python = frame.depth != null;
                const toggle = () => {
                    opened.has(key) ? opened.delete(key) : opened.add(key);
                    draw();
                };
                lines.push(python ? h('button', {type: 'button', class: 'frame', 'data-key': key, 'aria-expanded': String(opened.has(key)), onclick: toggle},
                    h('i', {}, `#${frame.number}`), h('span', {}, frame.func ?? '??'), h('small', {title: frame.file}, `${base(frame.file)}:${frame.lineno}`)) :
                    h('div', {class: 'frame native'}, h('i', {}, `#${frame.number}`), h('span', {}, frame.func ?? '??'), h('small', {}, base(frame.module))));
                if (python && opened.has(key))
                    lines.push(await inside(thread, frame, key).catch(error => h('div', {class: 'inside dim'}, error.message)));
            }
            made.push(h('section', {class: 'thread', 'aria-label': thread.thread},
                h('header', {}, h('b', {}, thread.thread), h('span', {class: 'dim'}, `${thread.tid}`), h('span', {class: stateClass(thread.state)}, stateOf(thread)),
                    thread.state === 'held' ? Object.keys(VERBS).map(verb => button(verb, () => tell(directory, thread.tid, verb, signal).then(draw), {'data-key': `${thread.tid} ${verb}`})) : null),
                lines.length ? lines : h('div', {class: 'inside dim'}, 'It runs no Python.'),
                others.length ? h('div', {class: 'inside dim'}, `${others.length} ${others.length === 1 ? 'thread' : 'threads'} as this one: ${others.map(one => `${one.tid} (${one.thread})`).join(', ')}`) : null));
        }
        if (!signal.aborted)
            show(body, made.length ? made : empty('It runs no Python just now: it is starting, or ending.'));
    }

    const selects = () => !getSelection().isCollapsed && body.contains(getSelection().anchorNode);
    await draw();
    await every(1000, body, async () => live && !selects() && await draw());
}
