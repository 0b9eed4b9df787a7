// How long the modules of a PyTorch model took, in the steps that were recorded.

import {bytes, button, empty, h, show, table, words} from '/dom.js';
import {plot} from '/plot.js';
import {query, write} from '/probe.js';

export async function torch(root, {directory, signal, every}) {
    const said = h('div'), body = h('div'), steps = h('div'), drawn = plot(['iteration, s'], {width: Math.max(280, Math.min(640, root.clientWidth - 40)), height: 150});
    const tell = verb => write(`${directory}/ctl`, verb + '\n', {signal}).then(() => said.replaceChildren(), error => show(said, words(error)));
    root.append(h('div', {class: 'row'}, button('record torch on rate=0.05', () => tell('record torch on rate=0.05')), button('record torch off', () => tell('record torch off'))), said, steps, body);
    await every(2000, body, async () => {
        const [modules, iterations] = await Promise.all([
            query(directory, `SELECT module, stage, count(*) AS times, avg(duration) AS mean, median(duration) AS median, max(duration) AS longest, max(max_allocated) AS max_allocated
                FROM torch_trace WHERE stage <> 'iteration' GROUP BY module, stage ORDER BY sum(duration) DESC LIMIT 200`, signal),
            query(directory, "SELECT ts, duration FROM torch_trace WHERE stage = 'iteration' AND duration IS NOT NULL ORDER BY ts DESC LIMIT 500", signal)]);
        iterations.reverse();
        if (iterations.length > 1) {
            if (!drawn.element.isConnected)
                steps.append(drawn.element);
            drawn.set([iterations.map(one => one.ts), iterations.map(one => one.duration)]);
        }
        const time = seconds => seconds == null ? '' : seconds.toPrecision(3);
        show(body, modules.length ? table(modules, {mean: time, median: time, longest: time, max_allocated: n => bytes(n)}) :
            empty('Nothing of PyTorch is recorded. In a process that trains a model press the button: one step in twenty is measured from then on.'));
    });
}
