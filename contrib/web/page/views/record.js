// The flight recorder: what of it is on, what it has, and where to see it.

import {button, h, show, table, words} from '/dom.js';
import {query, read, write} from '/probe.js';

const ASKS = {exceptions: ['record exceptions on', 'record exceptions on locals'], gc: ['record gc on'], loop: ['record loop on 100ms'],
    process_samples: ['record process on'], torch_trace: ['record torch on rate=0.05'], crash: ['on-crash record']};
const ENDS = {exceptions: 'record exceptions off', gc: 'record gc off', loop: 'record loop off', process_samples: 'record process off', torch_trace: 'record torch off', crash: 'on-crash off'};

export async function record(root, {directory, signal, every, go}) {
    const body = h('div'), said = h('div');
    const tell = async verb => {
        try {
            await write(`${directory}/ctl`, verb + '\n', {signal});
            said.replaceChildren();
        } catch (error) {
            show(said, words(error));
        }
        await draw();
    };
    root.append(h('div', {class: 'note'}, 'What happened, kept in shared memory, and for an hour after the process has ended. To record puts an agent into it; detach takes that out.'), said, body);

    async function draw() {
        const [rows, ctl] = await Promise.all([query(directory, "SELECT name, comment, kept, lost FROM tables WHERE source = 'recorded' ORDER BY name", signal), read(`${directory}/ctl`, signal)]);
        show(body, h('div', {class: 'wrap'}, table(rows.map(row => ({table: row.name, kept: row.kept, lost: row.lost, act: '', what: row.comment})), {
            what: comment => comment.split(/\. /)[0],
            table: name => h('a', {href: `#/${directory}/tables/${name}`}, name),
            act: (_, row) => [...ASKS[row.table] ?? [], ENDS[row.table]].filter(Boolean).map(verb => button(verb, () => tell(verb), {'data-key': verb})).reduce((all, one) => (all.append(one, ' '), all), h('span')),
        })), h('h2', {}, 'The agent'), h('pre', {}, ctl), h('div', {class: 'row'}, button('attach', () => tell('attach'), {'data-key': 'attach'}), button('detach', () => tell('detach'), {'data-key': 'detach'})));
    }
    await draw();
    await every(2000, body, draw);
}
