// A debugger: source with breakpoints, held threads, their stacks and variables, and what happens.

import {base, button, empty, h, show, table, tick, words} from '/dom.js';
import {follow, query, readIfThere, write, writeHere} from '/probe.js';
import {code, linesOf, nameOf} from '/source.js';
import {variables} from '/values.js';
import {lineOf} from '/views/events.js';
import {STACKS, tell, threadsOf, VERBS} from '/views/stacks.js';

const LOGGED = 100;
const GRAMMAR = '[here] [stop [all] [for TIME]|log] FILE:LINE, FUNC(), return FUNC(), raise [TYPE] [in|leaving PATH|own], watch EXPR [in TID[/DEPTH]], breakpoint() or nan [MODEL], then [{EXPR, ...}] [if EXPR] [after N] [every N] [x COUNT]';

export async function debug(root, {directory, signal, every, link}) {
    let tid = null, depth = null, whole = null; // whole: {file, lines}, once it was asked for
    let marked = new Map(), file = '', stays = false;
    const failed = h('div'), ends = h('div'), held = h('div'), source = h('div'), values = h('div'), set = h('div'), log = h('div', {class: 'log mono', role: 'log', 'aria-label': 'Events'});
    const line = h('input', {type: 'text', 'aria-label': 'Breakpoint', placeholder: 'stop train.py:88 if loss != loss', spellcheck: 'false'});
    const asked = h('input', {type: 'text', 'aria-label': 'Expression', placeholder: 'an expression, in the chosen frame', spellcheck: 'false'}), reply = h('pre');

    // Does it, says what went wrong, and shows how things are then.
    async function act(deed) {
        try {
            await deed();
            failed.replaceChildren();
        } catch (error) {
            if (!signal.aborted)
                show(failed, words(error));
        }
        await draw().catch(error => signal.aborted || show(failed, words(error)));
    }
    const breakpoints = text => act(() => writeHere(`${directory}/breakpoints`, text + '\n', {signal}));
    const here = text => stays || /^(\d+: *)?(here |-|(dis|en)able )/.test(text) ? text : text.replace(/^(\d+: *)?/, '$1here ');
    const onEnter = deed => event => event.key === 'Enter' && deed();
    const add = () => line.value.trim() && breakpoints(here(line.value.trim())).then(() => failed.childElementCount || (line.value = ''));
    const ask = () => asked.value.trim() && tid != null && act(async () => {
        reply.textContent = await write(`${directory}/threads/${tid}/frames/${depth}/eval`, asked.value + '\n', {signal});
    });
    line.addEventListener('keydown', onEnter(add));
    asked.addEventListener('keydown', onEnter(ask));

    const toggle = number => {
        const id = marked.get(number);
        return breakpoints(id == null ? `${stays ? '' : 'here '}stop ${/\s/.test(file) ? JSON.stringify(file) : file}:${number}` : `-${id}`);
    };
    const show_whole = () => act(async () => {
        const text = await readIfThere(`${directory}/sources/${nameOf(file)}`, signal) ||
            await write(`${directory}/eval`, `print(''.join(__import__('linecache').getlines(${JSON.stringify(file)})), end='')\n`, {signal});
        whole = {file, lines: text.split('\n').map((one, i) => ({number: i + 1, text: one, here: false}))};
    });

    let drawing = null, again = false;
    function draw() { // one at a time: what comes meanwhile is drawn after it
        if (drawing) {
            again = true;
            return drawing;
        }
        drawing = render().finally(() => {
            drawing = null;
            if (again && !signal.aborted) {
                again = false;
                return draw();
            }
        });
        return drawing;
    }
    async function render() {
        const [rows, lines] = await Promise.all([query(directory, STACKS, signal),
            query(directory, 'SELECT id, breakpoint, state, note, hits, errors FROM breakpoints ORDER BY id', signal)]);
        const all = threadsOf(rows).map(one => ({...one, frames: one.frames.filter(frame => frame.depth != null)}));
        const threads = all.filter(one => one.frames.length), crashed = all.filter(one => one.state === 'held' && !one.frames.length);
        show(ends, crashed.map(one => h('p', {class: 'held'}, `${one.thread} (${one.tid}) is held at its uncaught exception: `, h('a', {href: link('crash')}, 'its crash'))));
        const those = threads.filter(one => one.state === 'held');
        let chosen = threads.find(one => one.tid === tid);
        if (!chosen || those.length && chosen.state !== 'held') {
            chosen = those[0] ?? chosen ?? threads.find(one => one.is_main) ?? threads[0];
            depth = null;
        }
        if (!chosen) {
            show(held, empty('It runs no Python just now.'));
            return;
        }
        tid = chosen.tid;
        const frame = chosen.frames.find(one => one.depth === depth) ?? chosen.frames[0];
        const [said, text, bound] = await Promise.all([chosen.state === 'held' ? readIfThere(`${directory}/threads/${tid}/ctl`, signal) : '',
            readIfThere(`${directory}/threads/${tid}/frames/${frame.depth}/source`, signal),
            query(directory, `SELECT name, type, value FROM locals WHERE tid = ${tid} AND depth = ${frame.depth}`, signal)]);
        depth = frame.depth;
        file = frame.file ?? '';
        marked = new Map(lines.flatMap(one => {
            const at = /^(?:here )?(?:disabled )?(?:stop|log)(?: all)?(?: for \S+)? "?(.*?)"?:(\d+)\b/.exec(one.breakpoint);
            return at && (file === at[1] || file.endsWith('/' + at[1])) ? [[+at[2], one.id]] : [];
        }));
        const choose = (thread, one) => () => {
            tid = thread;
            depth = one;
            draw();
        };
        show(held,
            h('div', {class: 'row'}, h('select', {'aria-label': 'Thread', 'data-key': 'thread', onchange: event => choose(Number(event.target.value), null)()},
                threads.map(one => h('option', {value: one.tid, selected: one.tid === tid}, `${one.thread} (${one.tid}) ${one.state}`))),
            chosen.state === 'held' ? Object.entries(VERBS).map(([verb, key]) => button(`${verb} (${key})`, () => act(() => tell(directory, tid, verb, signal)), {'data-key': verb, class: verb === 'continue' ? 'main' : null})) :
                [button('pause', () => act(() => tell(directory, tid, 'pause', signal)), {'data-key': 'pause', title: 'holds this thread at the next line that it runs'}),
                    button('pause all', () => act(() => writeHere(`${directory}/ctl`, 'here pause\n', {signal})), {'data-key': 'pause all', title: 'holds each thread at the next line that it runs'})],
            those.length > 1 ? button('continue all', () => act(() => write(`${directory}/ctl`, 'continue\n', {signal})), {'data-key': 'all'}) : null),
            h('p', {class: chosen.state === 'held' ? 'held' : 'dim', role: 'status'}, said.trim() || `${chosen.state}: click a line's number, and the thread that gets there is held`),
            chosen.frames.map(one => h('button', {type: 'button', class: 'frame', 'data-key': `frame ${one.depth}`, 'aria-pressed': String(one.depth === depth), onclick: choose(tid, one.depth)},
                h('i', {}, `#${one.depth}`), h('span', {}, one.func ?? '??'), h('small', {title: one.file}, `${base(one.file)}:${one.lineno}`))));
        const near = linesOf(text), whole_ = whole?.file === file ? whole.lines.map(one => ({...one, here: one.number === frame.lineno})) : null;
        const before = `${source.dataset.at}`;
        source.dataset.at = `${file}:${frame.lineno}`;
        const scrolled = source.querySelector('.source')?.scrollTop;
        show(source, h('div', {class: 'row'}, h('b', {class: 'mono'}, `${base(file)}:${frame.lineno}`), whole_ ? null :
            button('whole file', show_whole, {'data-key': 'whole', title: 'where nobody else has it, asks the process, by its linecache'})),
        whole_ || near.length ? code(whole_ ?? near, {marked, toggle}) : empty('The source of this frame is not to be had from outside. “whole file” asks the process.'));
        const panel = source.querySelector('.source');
        if (panel && before === source.dataset.at)
            panel.scrollTop = scrolled ?? 0;
        else
            panel?.querySelector('.here')?.scrollIntoView({block: 'center'});
        show(values, variables(bound, `${tid}/${depth}`));
        show(set, lines.length ? table(lines.map(one => ({'': one.id, ...one})), {
            '': id => button('remove', () => breakpoints(`-${id}`), {'data-key': `remove ${id}`}),
            state: (state, row) => [`${state} `, state === 'disabled' ? button('enable', () => breakpoints(`enable ${row.id}`), {'data-key': `switch ${row.id}`}) :
                button('disable', () => breakpoints(`disable ${row.id}`), {'data-key': `switch ${row.id}`})],
        }) :
            h('p', {class: 'dim'}, 'None is set.'));
    }

    root.append(failed, ends, h('div', {class: 'debug'},
        h('div', {}, h('div', {class: 'of-source'}, source),
            h('div', {class: 'of-set'}, h('h2', {}, 'Breakpoints'), h('div', {class: 'wrap'}, set), h('div', {class: 'row'}, line, button('Add', add)),
                tick('they stay when this page is closed', stays, on => { stays = on; }), h('p', {}, h('small', {}, GRAMMAR)), h('h2', {}, 'Events'), log)),
        h('div', {}, h('div', {class: 'of-thread'}, held),
            h('div', {class: 'of-values'}, h('h2', {}, 'Variables'), values, h('h2', {}, 'Ask'), h('div', {class: 'row'}, asked, button('Run', ask)), reply))));
    addEventListener('keydown', event => {
        const verb = Object.keys(VERBS).find(one => VERBS[one] === event.key);
        if (verb && !event.ctrlKey && !event.metaKey && !event.altKey && !event.target.closest?.('input, textarea, select'))
            held.querySelector(`[data-key="${verb}"]`)?.click();
    }, {signal});
    follow(`${directory}/events`, signal, event => {
        log.prepend(h('div', {}, ...lineOf(event)));
        if (log.childElementCount > LOGGED)
            log.lastChild.remove();
        if (['stop', 'continue', 'hit', 'crash'].includes(event.kind) && !drawing)
            draw().catch(() => {});
    }).catch(error => signal.aborted || show(failed, words(error)));
    await every(1500, held, draw);
}
