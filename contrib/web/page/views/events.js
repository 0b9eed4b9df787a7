// What happens from now on.

import {base, button, clock, empty, h, words} from '/dom.js';
import {follow} from '/probe.js';

const SHOWN = 500;

// An event in a line.
export function lineOf(event) {
    const {ts, kind, pid, tid, func, file, lineno, ...more} = event;
    const place = func ? `${func} (${base(file)}:${lineno})` : '';
    const rest = Object.entries(more).filter(([name, value]) => value != null && name !== 'stack' && name !== 'host')
        .map(([name, value]) => `${name}=${typeof value === 'object' ? JSON.stringify(value) : value}`).join(' ');
    return [h('small', {}, `${clock(ts)} ${pid}${tid ? '/' + tid : ''} `), h('b', {class: kind === 'stop' ? 'held' : kind === 'crash' ? 'bad' : null}, kind), ` ${place} `, h('span', {class: 'dim'}, rest.slice(0, 1000))];
}

export async function events(root, {directory, signal}) {
    const log = h('div', {class: 'log mono', role: 'log', 'aria-label': 'Events'});
    const waits = empty('Nothing has happened since this view was opened. There are events of probing.event() in the program, of breakpoints, held threads, crashes, blocked loops, agents that come and go, and of its end.');
    root.append(h('div', {class: 'row'}, button('Clear', () => log.replaceChildren())), waits, log);
    try {
        await follow(`${directory}/events`, signal, event => {
            waits.remove();
            log.prepend(h('div', {}, ...lineOf(event)));
            if (log.childElementCount > SHOWN)
                log.lastChild.remove();
        });
        log.prepend(h('div', {class: 'dim'}, 'It has ended.'));
    } catch (error) {
        if (!signal.aborted)
            root.append(words(error));
    }
}
