// What it is and how it does: its status, what it uses since the page is open, and its busiest functions.

import {bytes, h, show} from '/dom.js';
import {plot} from '/plot.js';
import {query, read, readIfThere} from '/probe.js';

const SAMPLES = 600;
const FIRST = ['Stuck', 'Stopped', 'State', 'GilHolder', 'GilWaiting'];

export async function now(root, {directory, signal, every}) {
    const width = Math.max(280, Math.min(640, root.clientWidth - 40));
    const cpu = plot(['processor, %'], {width, height: 150}), memory = plot(['resident memory'], {width, height: 150, format: bytes});
    const facts = h('div'), plots = h('div'), top = h('div'), rows = [];
    root.append(facts, plots, top);

    await every(1000, facts, async () => {
        const [status, [row], busiest] = await Promise.all([read(`${directory}/status`, signal),
            query(directory, 'SELECT cpu_user + cpu_system AS used, rss FROM process', signal), readIfThere(`${directory}/top`, signal)]);
        rows.push({ts: Date.now() / 1000, ...row});
        rows.splice(0, rows.length - SAMPLES);
        const times = rows.map(one => one.ts);
        cpu.set([times, rows.map((one, i) => i ? 100 * (one.used - rows[i - 1].used) / (one.ts - rows[i - 1].ts) : null)]);
        memory.set([times, rows.map(one => one.rss)]);
        if (rows.length > 1 && !plots.childElementCount)
            plots.append(h('h2', {}, 'Since you look'), cpu.element, memory.element);
        const lines = status.split('\n').filter(Boolean).map(line => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 1).trim()]);
        const order = ([name]) => FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length;
        lines.sort((a, b) => order(a) - order(b));
        show(facts, h('dl', {class: 'facts'}, lines.map(([name, value]) => [h('dt', {}, name), h('dd', {class: name === 'Stuck' ? 'bad' : null}, value)]).flat()));
        show(top, busiest ? [h('h2', {}, 'Busiest functions'), h('pre', {}, busiest)] : null);
    });
}
