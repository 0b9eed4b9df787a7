// SQL: a box, the tables that there are, the rows; and lines over time, where the rows have one.

import {box, button, clock, h, show, table, words} from '/dom.js';
import {plot} from '/plot.js';
import {query} from '/probe.js';

const TIMES = ['ts', 'start'];
const PLOTTED = 8;

// What can be drawn of rows: each numeric column over the first one that is a time.
export function drawing(rows) {
    const time = TIMES.find(name => rows[0] && typeof rows[0][name] === 'number');
    if (!time || rows.length < 2)
        return null;
    const sorted = [...rows].sort((a, b) => a[time] - b[time]);
    const names = Object.keys(rows[0]).filter(name => name !== time && !/(^|_)(id|tid|pid|address|parent|span)$/.test(name) &&
        rows.some(row => typeof row[name] === 'number')).slice(0, PLOTTED);
    return names.length ? {names, times: sorted.map(row => row[time]), columns: names.map(name => sorted.map(row => typeof row[name] === 'number' ? row[name] : null))} : null;
}

export async function tables(root, {directory, rest, signal, go}) {
    const out = h('div'), known = h('div', {class: 'row'});
    const text = box({'aria-label': 'SQL', 'data-key': 'sql'}, run);
    const first = directory === 'all' || directory.startsWith('jobs/') ? 'SELECT pid, rank, thread, func, file, lineno FROM backtrace WHERE depth = 0' :
        directory.startsWith('exited/') ? 'SELECT name, kept, lost FROM tables WHERE kept IS NOT NULL' : 'SELECT thread, func, file, lineno FROM backtrace WHERE depth = 0';
    text.value = rest ? `SELECT * FROM ${rest} LIMIT 500` : first;

    async function run() {
        const begun = performance.now();
        out.replaceChildren(h('p', {class: 'dim'}, 'Asking …'));
        try {
            const rows = await query(directory, text.value.replace(/;\s*$/, ''), signal), found = drawing(rows);
            const times = Object.fromEntries(TIMES.map(name => [name, value => typeof value === 'number' ? clock(value) : null]));
            show(out, h('p', {class: 'dim', role: 'status'}, `${rows.length} ${rows.length === 1 ? 'row' : 'rows'}, ${(performance.now() - begun).toFixed(0)} ms`));
            if (found)
                for (const [i, name] of found.names.entries()) {
                    const drawn = plot([name], {width: Math.max(280, Math.min(760, root.clientWidth - 40)), height: 140});
                    out.append(drawn.element);
                    drawn.set([found.times, found.columns[i]]);
                }
            out.append(table(rows, times));
        } catch (error) {
            if (!signal.aborted)
                show(out, words(error));
        }
    }

    root.append(known, text, h('div', {class: 'row'}, button('Run', run, {class: 'main'}), h('small', {}, 'or Ctrl-Enter. Asking changes nothing in the process.')), out);
    const there = await query(directory, 'SELECT name, comment, kept FROM tables ORDER BY name', signal);
    const names = [...new Map(there.map(one => [one.name, one])).values()];
    show(known, names.map(one => button(one.name, () => {
        const called = one.comment.startsWith(`${one.name}(`) && one.comment.slice(0, one.comment.indexOf(')') + 1);
        text.value = `SELECT * FROM ${called || one.name} LIMIT 500`;
        if (called) // with what, a person has to say
            text.focus();
        else
            run();
    }, {title: one.comment})));
    await run();
}
