// The page: processes at the left, one view of one of them at the right. The address behind # says which: #/1234/stacks.

import {bytes, empty, h, short, show, words} from '/dom.js';
import {list, query, readIfThere, Refused, takeToken} from '/probe.js';
import {collectives} from '/views/collectives.js';
import {crash} from '/views/crash.js';
import {debug} from '/views/debug.js';
import {evaluate} from '/views/eval.js';
import {events} from '/views/events.js';
import {files} from '/views/files.js';
import {flame} from '/views/flame.js';
import {now} from '/views/now.js';
import {places} from '/views/places.js';
import {record} from '/views/record.js';
import {stacks} from '/views/stacks.js';
import {tables} from '/views/tables.js';
import {torch} from '/views/torch.js';

// Each view: (root, context) => it fills root, and goes on until context.signal. The names are those of the address.
const PROCESS = {now, stacks, debug, flame, tables, eval: evaluate, record, torch, crash, events, files};
const ENDED = {crash, tables, files};
const MANY = {places, collectives, tables, events, files};
const LOOK_MS = 2000;

const at = id => document.getElementById(id);
const ended = new Map();
let processes = [], shown = new AbortController();

function route() {
    const parts = location.hash.replace(/^#\/?/, '').split('/').filter(Boolean).map(decodeURIComponent);
    const depth = ['exited', 'jobs'].includes(parts[0]) ? 2 : 1;
    const directory = parts.slice(0, depth).join('/');
    const views = !directory ? {} : parts[0] === 'exited' ? ENDED : /^\d+$/.test(directory) ? PROCESS : MANY;
    const view = views[parts[depth]] ? parts[depth] : Object.keys(views)[0];
    return {directory, views, view, rest: parts.slice(depth + 1).join('/') + (parts.length > depth + 1 && location.hash.endsWith('/') ? '/' : '')};
}

const link = (directory, view, rest = '') => `#/${directory}/${view}${rest && '/' + rest}`;

// Waits, and until the page is looked at. Never after the signal.
function pause(ms, signal) {
    return new Promise(resolve => {
        const go = () => document.hidden ? document.addEventListener('visibilitychange', go, {once: true, signal}) : resolve();
        const timer = setTimeout(go, ms);
        signal.addEventListener('abort', () => clearTimeout(timer));
    });
}

// Shows what step() gives again and again. What fails is said in its place, and is tried again.
async function every(ms, signal, root, step) {
    while (!signal.aborted) {
        try {
            await step();
        } catch (error) {
            if (signal.aborted)
                return;
            if (!(error instanceof Refused))
                console.error(error);
            show(root, words(error));
        }
        await pause(ms, signal);
    }
}

function showHead({directory, views, view}) {
    const process = processes.find(one => String(one.pid) === directory);
    document.body.classList.toggle('at-process', !!directory);
    document.title = directory ? `${directory} ${view}: probefs` : 'probefs';
    show(at('head'), ...directory ? [
        h('a', {href: '#/', 'aria-label': 'All processes', 'data-key': 'back'}, '←'),
        h('b', {title: process?.command ?? ''}, `${directory}${process ? ' ' + short(process.command) : ''}`)] : []);
    show(at('tabs'), ...Object.keys(views).map(name =>
        h('a', {href: link(directory, name), 'aria-current': name === view ? 'page' : null, 'data-key': name}, name)));
}

function draw() {
    const now_ = route(), {directory, views, view, rest} = now_;
    const root = at('view');
    shown.abort();
    shown = new AbortController();
    const {signal} = shown;
    showHead(now_);
    at('tabs').querySelector('[aria-current]')?.scrollIntoView({block: 'nearest', inline: 'nearest'});
    showProcesses();
    if (!directory) {
        show(root, empty(h('h2', {}, 'Choose a process'),
            h('p', {}, 'At the left is each Python process that you may look at. Looking changes nothing in it, even if it hangs. Only what you write acts: eval, debug, record.'),
            h('p', {}, 'Keys: / filters, arrows move through the list, Ctrl-Enter runs what stands in a box; where a thread is held c, n, s and f continue, go to the next line, step in, and finish the function; the buttons in the view debug have the others.')));
        return;
    }
    const context = {directory, rest, signal, link: (name, more) => link(directory, name, more), go: (name, more) => { location.hash = link(directory, name, more); },
        again: draw, every: (ms, target, step) => every(ms, signal, target, step), pause: ms => pause(ms, signal)};
    root.replaceChildren();
    root.scrollTop = 0;
    Promise.resolve(views[view](root, context)).catch(error => {
        if (!signal.aborted) {
            if (!(error instanceof Refused))
                console.error(error);
            root.append(words(error));
        }
    });
}

function showProcesses() {
    const {directory} = route(), wanted = at('filter').value.toLowerCase();
    const entry = (name, view, title, ...lines) => h('a', {
        href: link(name, view), title, 'data-key': name, 'aria-current': name === directory ? 'page' : null}, ...lines);
    const found = processes.filter(one => `${one.pid} ${one.command}`.toLowerCase().includes(wanted));
    show(at('processes'), found.length ? found.map(one => entry(String(one.pid), route().view in PROCESS ? route().view : 'now', one.command,
        h('b', {}, (one.rank == null ? '' : `[rank ${one.rank}] `) + short(one.command)),
        h('small', {}, `${one.pid} · ${one.python} · ${one.state.slice(0, 1)} · ${one.cpu == null ? '' : one.cpu.toFixed(0) + ' % · '}${bytes(one.rss)} · ${one.threads} threads`))) :
        empty(processes.length ? 'None has that in its command line.' : 'No Python process runs that you may look at. Start one, or mount probefs as its user or as root.'));
    show(at('places'), showProcesses.places.filter(name => `${name} ${ended.get(name) ?? ''}`.toLowerCase().includes(wanted)).map(name =>
        entry(name, name.startsWith('exited/') ? 'crash' : 'places', ended.get(name) ?? name,
            h('b', {}, name === 'all' ? 'all processes' : name.replace('exited/', 'ended: ').replace('jobs/', 'job: ')), ended.get(name) ? h('small', {}, ended.get(name)) : null)));
}
showProcesses.places = ['all'];

// What an ended process was and how it ended, which is read once.
async function learn(name) {
    ended.set(name, '');
    const said = await readIfThere(`${name}/status`), of = key => new RegExp(`^${key}: (.*)$`, 'm').exec(said)?.[1];
    ended.set(name, [of('Exit'), short(of('Cmdline'))].filter(Boolean).join(' · '));
}

async function look() {
    const before = new Map(processes.map(one => [one.pid, one])), seen = performance.now();
    const below = async name => (await list(name).catch(() => [])).map(one => `${name}/${one.replace('/', '')}`);
    const rows = await query('all', 'SELECT pid, rank, python, command, state, rss, threads, cpu_user + cpu_system AS used FROM process ORDER BY rank IS NULL, rank, pid');
    for (const one of rows) {
        const last = before.get(one.pid);
        one.seen = seen;
        one.cpu = last && 100 * (one.used - last.used) / ((seen - last.seen) / 1000);
    }
    processes = rows;
    const gone = (await below('exited')).filter(name => /\/\d+$/.test(name));
    await Promise.all(gone.filter(name => !ended.has(name)).map(learn));
    showProcesses.places = ['all', ...await below('jobs'), ...gone];
    showProcesses();
    if (!at('head').contains(document.activeElement))
        showHead(route());
}

addEventListener('hashchange', () => {
    takeToken();
    draw();
});
at('filter').addEventListener('input', showProcesses);
addEventListener('keydown', event => {
    const typing = event.target.closest?.('input, textarea, select');
    if (event.key === '/' && !typing) {
        event.preventDefault();
        at('filter').focus();
    }
    if (['ArrowDown', 'ArrowUp'].includes(event.key) && event.target.closest?.('aside')) {
        const entries = [...document.querySelectorAll('aside nav a')], step = event.key === 'ArrowDown' ? 1 : -1;
        event.preventDefault();
        entries[entries.indexOf(document.activeElement) + step]?.focus();
    }
});
takeToken();
draw();
every(LOOK_MS, new AbortController().signal, at('processes'), look);
