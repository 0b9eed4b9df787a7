// Source, with the line where a frame is.

import {h} from '/dom.js';

// The name that a file has in sources/.
export const nameOf = file => file.replaceAll('!', '\\x21').replaceAll('/', '!');

// The lines of the file `source`: [{number, text, here}]; its first line says of what it is.
export function linesOf(text) {
    const found = [];
    for (const line of text.split('\n').slice(1)) {
        const match = /^ *(\d+)(?:  (->|  )(?:  (.*))?)?/.exec(line);
        if (match)
            found.push({number: +match[1], text: match[3] ?? '', here: match[2] === '->'});
    }
    return found;
}

// lines as above. marked: Map of line numbers to breakpoints; toggle(number): what its button does.
export function code(lines, {marked = new Map(), toggle} = {}) {
    return h('div', {class: 'source', tabindex: '0'}, lines.map(({number, text, here}) => {
        const label = marked.has(number) ? `● ${number}` : String(number);
        return h('div', {class: [here ? 'here' : '', marked.has(number) ? 'stop' : ''].join(' ').trim() || null},
            toggle ? h('button', {type: 'button', 'data-key': `line ${number}`, onclick: () => toggle(number), 'aria-pressed': String(marked.has(number)), title: marked.has(number) ? 'remove the breakpoint' : 'stop here'}, label) :
                h('button', {type: 'button', disabled: true}, label),
            h('code', {}, text || ' '));
    }));
}

export const listing = text => code(linesOf(text));
