// Many processes at once, all of them or those of a job: where their main threads are, equal places once, the rarest first.

import {base, empty, h, show} from '/dom.js';
import {query, readIfThere} from '/probe.js';

const SQL = `SELECT b.pid AS pid, b.rank AS rank, func, file, lineno, state, stands FROM backtrace AS b JOIN threads AS t
    ON t.host = b.host AND t.pid = b.pid AND t.tid = b.tid WHERE is_main AND b.depth = 0 ORDER BY b.rank, b.pid`;
const NAMED = 64;

export async function places(root, {directory, signal, every}) {
    const status = h('pre'), body = h('div'), stacks = h('pre');
    root.append(status, h('h2', {}, 'Where the main threads are'), body, stacks);
    await every(2000, body, async () => {
        const [rows, said, alike] = await Promise.all([query(directory, SQL, signal), readIfThere(`${directory}/status`, signal),
            directory === 'all' ? '' : readIfThere(`${directory}/backtrace`, signal)]);
        const found = new Map();
        for (const row of rows) {
            const key = `${row.func} (${row.file}:${row.lineno}) [${row.state}]`;
            found.set(key, [...found.get(key) ?? [], row]);
        }
        status.textContent = said;
        stacks.textContent = alike;
        const link = one => h('a', {href: `#/${one.pid}/stacks`, 'data-key': one.pid}, one.rank == null ? String(one.pid) : `rank ${one.rank}`);
        show(body, rows.length ? [...found].sort((a, b) => a[1].length - b[1].length).map(([key, those]) =>
            h('div', {class: 'place'}, h('div', {}, `${those.length} of ${rows.length}`, h('meter', {max: rows.length, value: those.length, 'aria-label': 'share'})),
                h('div', {}, h('div', {class: 'mono', title: key}, `${those[0].func} (${base(those[0].file)}:${those[0].lineno}) [${those[0].state}]`),
                    h('small', {}, those.slice(0, NAMED).flatMap(one => [link(one), ' ']), those.length > NAMED ? `and ${those.length - NAMED} more` : '')))) :
            empty('No main thread runs Python just now.'));
    });
}
