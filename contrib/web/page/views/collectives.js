// In which collective of torch.distributed each rank is: of each group whoever is in one, and where its others are.

import {button, empty, h, show, words} from '/dom.js';
import {query, read, write} from '/probe.js';

// The file, in parts: [{head, lines: [[who, what], ...]}, ...]; a line has no who if it begins no list of ranks.
export function partsOf(text) {
    return text.trim().split('\n\n').map(part => {
        const [head, ...lines] = part.split('\n');
        return {head, lines: lines.map(line => {
            const found = /^ {2}(\S.*? \(\d+\)): (.*)$/.exec(line);
            return found ? [found[1], found[2]] : ['', line];
        })};
    });
}

// The numbers in `ranks 0-2,5`.
export const ranksOf = who => [...(/ranks? ([\d,-]+)/.exec(who)?.[1] ?? '').matchAll(/(\d+)(?:-(\d+))?/g)]
    .flatMap(([, from, to]) => Array.from({length: (to ?? from) - from + 1}, (_, i) => +from + i));

const LINKED = 16;

export async function collectives(root, {directory, signal, every}) {
    const said = h('div'), body = h('div');
    const tell = verb => write(`${directory}/ctl`, verb + '\n', {signal}).then(text => show(said, h('pre', {class: 'dim'}, text)), error => show(said, words(error)));
    root.append(h('div', {class: 'row'}, button('record collectives on', () => tell('record collectives on')), button('record collectives off', () => tell('record collectives off')),
        h('small', {}, 'With it each rank’s collectives are counted, and who is behind is known by number.')), said, body);
    await every(2000, body, async () => {
        const [text, rows] = await Promise.all([read(`${directory}/collectives`, signal),
            query(directory, 'SELECT rank, pid FROM process WHERE rank IS NOT NULL AND worker IS NOT 1', signal)]);
        const pids = new Map(rows.map(one => [one.rank, one.pid]));
        const link = rank => pids.has(rank) ? h('a', {href: `#/${pids.get(rank)}/stacks`, 'data-key': `rank ${rank}`}, `rank ${rank}`) : `rank ${rank}`;
        if (text.startsWith('no process here')) {
            show(body, empty('No process here has a group of torch.distributed. Where one has, each group stands here with the ranks that are in one of its collectives, and where the others are.'));
            return;
        }
        show(body, partsOf(text).map(({head, lines}) => [
            lines.length ? h('h2', {class: / behind/.test(head) ? 'bad' : null}, head) : h('p', {class: 'dim'}, head),
            lines.map(([who, what]) => {
                const ranks = ranksOf(who);
                return !who ? h('pre', {}, what) : h('div', {class: 'place'}, h('div', {}, ranks.length && ranks.length <= LINKED ? ranks.flatMap(rank => [link(rank), ' ']) : who), h('div', {class: 'mono'}, what));
            })]).flat(2));
    });
}
