// Flame graph: of looks at the stacks from now on, or of what `profile` collects where it does.

import {button, empty, h, show, tick, words} from '/dom.js';
import {read, readIfThere, write} from '/probe.js';

const LOOK_MS = 100, DRAW_MS = 500, ROW = 19, NARROWEST = 2, BOXES = 4000;

const node = name => ({name, count: 0, children: new Map()});

// Adds lines `outermost;...;innermost COUNT`.
export function fold(root, text, native) {
    for (const line of text.split('\n')) {
        const space = line.lastIndexOf(' '), count = Number(line.slice(space + 1));
        if (space < 0 || !(count > 0))
            continue;
        let at = root;
        at.count += count;
        for (const frame of line.slice(0, space).split(';')) {
            if (!native && frame.endsWith('[native]'))
                continue;
            if (!at.children.has(frame))
                at.children.set(frame, node(frame));
            at = at.children.get(frame);
            at.count += count;
        }
    }
}

// A colour for a name, always the same: cold for C, warm for Python.
function colour(name) {
    let hash = 0;
    for (const c of name)
        hash = hash * 31 + c.charCodeAt(0) | 0;
    const spread = Math.abs(hash);
    return name.endsWith('[native]') ? `hsl(210 25% ${68 + spread % 12}%)` : `hsl(${18 + spread % 40} 80% ${66 + (spread >> 8) % 14}%)`;
}

export async function flame(root, {directory, signal, pause, again}) {
    let stacks = node('all'), zoomed = [], looks = 0, live = true, native = false, wanted = '', drawn = 0;
    const graph = h('div', {class: 'flame', role: 'group', 'aria-label': 'Flame graph'}), info = h('span', {class: 'dim', role: 'status'}), failed = h('div');
    const collected = !!await readIfThere(`${directory}/profile/folded`, signal);
    let source = collected ? 'profile/folded' : 'stacks.folded';

    const names = () => [stacks, ...zoomed.map((_, i) => zoomed.slice(0, i + 1).reduce((at, name) => at?.children.get(name), stacks))].filter(Boolean);
    function draw() {
        const width = graph.clientWidth, boxes = [], path = names(), focus = path.at(-1);
        let deepest = 0;
        const add = (one, x, wide, y, trail) => {
            if (wide < NARROWEST || boxes.length > BOXES)
                return;
            deepest = Math.max(deepest, y);
            const share = `${(100 * one.count / (stacks.count || 1)).toFixed(1)} %`, words = one.name.replace(/ \(.*\//, ' (');
            const made = button(wide > 30 ? words : '', () => {
                zoomed = trail;
                draw();
            }, {title: `${one.name}\n${one.count} of ${stacks.count}, ${share}`, 'aria-label': `${words}, ${share}`, 'data-key': trail.join(';'),
                class: [y < path.length - 1 ? 'above' : '', wanted && one.name.toLowerCase().includes(wanted) ? 'found' : ''].join(' ')});
            Object.assign(made.style, {left: `${x}px`, width: `${wide}px`, top: `${y * ROW}px`, background: colour(one.name)});
            boxes.push(made);
        };
        const walk = (one, x, wide, y, trail) => {
            add(one, x, wide, y, trail);
            for (const child of [...one.children.values()].sort((a, b) => a.name < b.name ? -1 : 1)) {
                const part = wide * child.count / one.count;
                if (part >= NARROWEST)
                    walk(child, x, part, y + 1, [...trail, child.name]);
                x += part;
            }
        };
        path.slice(0, -1).forEach((one, y) => add(one, 0, width, y, zoomed.slice(0, y)));
        if (focus.count)
            walk(focus, 0, width, path.length - 1, zoomed.slice(0, path.length - 1));
        graph.style.height = `${(deepest + 1) * ROW}px`;
        show(graph, boxes);
        info.textContent = source === 'stacks.folded' ? `${looks} looks, ${stacks.count} stacks` : `${stacks.count} collected`;
    }
    function restart() {
        stacks = node('all');
        zoomed = [];
        looks = 0;
        draw();
    }
    root.append(h('div', {class: 'row'},
        collected ? h('select', {'aria-label': 'Of what', onchange: event => { source = event.target.value; restart(); }},
            h('option', {value: 'profile/folded'}, 'collected by profile'), h('option', {value: 'stacks.folded'}, 'looks from now on')) : null,
        tick('live', live, on => { live = on; }), tick('C frames', native, on => { native = on; restart(); }),
        button('All of it', () => { zoomed = []; draw(); }), button('From now', restart),
        h('input', {type: 'search', placeholder: 'find', 'aria-label': 'Find', oninput: event => { wanted = event.target.value.toLowerCase(); draw(); }}), info),
    h('div', {class: 'row'}, ['profile cpu', 'profile wall', 'profile off'].map(verb => button(verb, () => write(`${directory}/ctl`, verb + '\n', {signal}).then(again, error => show(failed, words(error)))))),
    h('p', {class: 'dim'}, `Choose a box to make it the widest. ${collected ? '' : 'Each look counts every thread once, also those that wait; a profile has the time that each took.'}`), failed, graph);
    addEventListener('keydown', event => {
        if (event.key === 'Escape') {
            zoomed = [];
            draw();
        }
    }, {signal});
    addEventListener('resize', draw, {signal});
    for (; !signal.aborted; await pause(source === 'stacks.folded' ? LOOK_MS : 1000, signal)) {
        if (!live)
            continue;
        try {
            const text = await read(`${directory}/${source}`, signal);
            if (source !== 'stacks.folded')
                stacks = node('all');
            fold(stacks, text, native);
            looks++;
            if (performance.now() - drawn > DRAW_MS) {
                drawn = performance.now();
                draw();
            }
            failed.replaceChildren();
        } catch (error) {
            if (signal.aborted)
                return;
            show(failed, words(error));
            await pause(1000, signal);
        }
    }
}
