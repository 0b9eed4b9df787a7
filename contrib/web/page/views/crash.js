// What an ended process left: how it ended, and its crash with the variables of each frame.

import {base, empty, h} from '/dom.js';
import {list, read, readIfThere} from '/probe.js';
import {value} from '/values.js';

export async function crash(root, {directory, signal}) {
    root.append(h('pre', {}, await read(`${directory}/status`, signal)));
    const traceback = await readIfThere(`${directory}/crash/traceback`, signal), stacks = await readIfThere(`${directory}/crash/backtrace`, signal);
    if (!traceback && !stacks) {
        root.append(empty('It left no crash. Before the next one: ', h('code', {}, 'on-crash record'), ' in the view record of the running process.'));
        return;
    }
    root.append(h('h2', {}, 'Crash'), h('pre', {class: 'bad'}, traceback), stacks ? h('pre', {}, stacks) : '');
    const frames = traceback ? await list(`${directory}/crash/frames`, signal).catch(() => []) : [];
    for (const depth of frames.map(name => name.replace('/', '')).sort((a, b) => a - b)) {
        const lines = (await readIfThere(`${directory}/crash/frames/${depth}/locals`, signal)).split('\n').filter(Boolean);
        root.append(h('h2', {}, `Frame ${depth}`), h('div', {class: 'value'}, lines.map(line => {
            const cut = line.indexOf(' = ');
            return cut < 0 ? h('div', {class: 'leaf dim'}, line) : value(line.slice(0, cut), '', line.slice(cut + 3), `${depth}/${line.slice(0, cut)}`);
        })));
    }
}
