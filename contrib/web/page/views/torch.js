// PyTorch: how long a model's modules took in the steps that were recorded; its modules, parameters, tensors, optimizers and
// memory, which are read from outside.

import {bytes, button, empty, h, show, table, words} from '/dom.js';
import {plot} from '/plot.js';
import {query, readIfThere, write} from '/probe.js';

const sizes = names => Object.fromEntries(names.map(name => [name, n => bytes(n)]));
const MEMORY = ['allocated', 'largest', 'parameters', 'gradients', 'optimizers', 'buffers', 'activations', 'others'];

// What is read, by name: SQL, how its cells are shown, and SQL that reads the values, too.
const READ = {
    parameters: ['SELECT model, name, shape, dtype, device, bytes, requires_grad, version FROM torch_parameters', sizes(['bytes']),
        'SELECT model, name, shape, norm, grad_norm, nan, inf, grad_nan, grad_inf, min, max FROM torch_parameters ORDER BY nan + inf + coalesce(grad_nan + grad_inf, 0) > 0 DESC'],
    tensors: ['SELECT holder, model, name, shape, dtype, device, bytes, storage_bytes, version FROM torch_tensors ORDER BY bytes DESC LIMIT 500', sizes(['bytes', 'storage_bytes']),
        'SELECT holder, model, name, shape, norm, nan, inf, min, max FROM torch_tensors ORDER BY nan + inf > 0 DESC, bytes DESC LIMIT 500'],
    optimizers: ['SELECT optimizer, param_group, lr, weight_decay, parameters, state_bytes, step FROM torch_optimizers', sizes(['state_bytes'])],
    memory: [`SELECT device, tensors, storages, ${MEMORY.join(', ')} FROM torch_memory`, sizes(MEMORY)],
};
const NONE = 'It has no PyTorch, or nothing of that. What a model is made of stands here without a line of its code being run.';

async function times(root, {directory, signal, every}) {
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

// The file torch/modules, with each module below the one that it is in.
async function modules(root, {directory, signal}) {
    const text = await readIfThere(`${directory}/torch/modules`, signal);
    root.append(text.trim() ? h('div', {class: 'mono'}, text.trimEnd().split('\n').map(line => {
        const [, path, type, rest] = /^(\S+) (\S+)(.*)$/.exec(line) ?? ['', '', '', line];
        const isModel = /^ ?\d+ modules?/.test(`${type}${rest}`);
        const row = h('div', {class: isModel ? 'held' : null}, isModel ? line : [h('b', {}, path), h('span', {}, ` ${type}`), h('small', {}, rest)]);
        row.style.paddingLeft = isModel ? '0' : `${path.split('.').length}rem`;
        return row;
    })) : empty(NONE));
}

async function rows(root, {directory, signal}, name) {
    const [sql, cells, values] = READ[name];
    const body = h('div');
    const ask = async text => {
        show(body, h('p', {class: 'dim'}, 'Reading …'));
        try {
            const found = await query(directory, text, signal);
            show(body, found.length ? table(found, cells) : empty(NONE));
        } catch (error) {
            if (!signal.aborted)
                show(body, words(error));
        }
    };
    root.append(h('div', {class: 'row'}, button('Read again', () => ask(sql)), values ? button('With their values', () => ask(values), {title: 'norm, NaN, least and greatest; of what is in main memory'}) : null), body);
    await ask(sql);
}

export async function torch(root, context) {
    const inner = h('div'), chosen = ['modules', ...Object.keys(READ)].includes(context.rest) ? context.rest : 'times';
    root.append(h('nav', {class: 'row', 'aria-label': 'Of PyTorch'}, ['times', 'modules', ...Object.keys(READ)].map(name =>
        h('a', {href: context.link('torch', name), 'aria-current': name === chosen ? 'page' : null}, name))), inner);
    await (chosen === 'times' ? times(inner, context) : chosen === 'modules' ? modules(inner, context) : rows(inner, context, chosen));
}
