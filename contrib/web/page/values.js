// A value as the files show it, `<shop.Cart object at 0x7f12> {items=[1, 2], owner='Ada'}`, as a tree to be opened. It is
// taken apart as text: the process is not asked for anything.

import {h} from '/dom.js';

const CLOSES = {'[': ']', '{': '}', '(': ')'};
const ITEMS_SHOWN = 500;

// Where the text in quotes that begins at i ends: behind its closing quote, or at the end of what is there.
function afterQuotes(text, i) {
    const quote = text[i];
    for (i++; i < text.length && text[i] !== quote; i++)
        if (text[i] === '\\')
            i++;
    return i + 1;
}

// The bracket that closes the text's last one, and what stands in it: {head, open, items}. null: it has no parts.
export function parts(text) {
    if (!/[\])}]$/.test(text))
        return null;
    const stack = [];
    let begin = -1, items = [], from = 0;
    for (let i = 0; i < text.length; i++) {
        const c = text[i];
        if ((c === "'" || c === '"') && !/[\w)]/.test(text[i - 1] ?? '') || /[bru]['"]/i.test(text.slice(i - 1, i + 1))) {
            i = afterQuotes(text, i) - 1;
        } else if (c in CLOSES) {
            if (!stack.length) {
                begin = i;
                items = [];
                from = i + 1;
            }
            stack.push(CLOSES[c]);
        } else if (c === stack.at(-1)) {
            stack.pop();
            if (!stack.length && text.slice(from, i).trim())
                items.push(text.slice(from, i).trim());
        } else if (c === ',' && stack.length === 1) {
            items.push(text.slice(from, i).trim());
            from = i + 1;
        }
    }
    return stack.length || begin < 0 || !items.length ? null : {head: text.slice(0, begin).trim(), open: text[begin], items};
}

// The name in front of an item of what these brackets hold, as `name=` or `key: `; and its value.
function named(item, open, number) {
    let depth = 0;
    if (open === '{')
        for (let i = 0; i < item.length; i++) {
            if (item[i] === "'" || item[i] === '"')
                i = afterQuotes(item, i) - 1;
            else if ('[{('.includes(item[i]))
                depth++;
            else if (')}]'.includes(item[i]))
                depth--;
            else if (!depth && (item[i] === '=' || item.startsWith(': ', i)))
                return [item.slice(0, i), item.slice(i + 1).trim()];
        }
    return [/^\.\.\. /.test(item) ? '' : String(number), item];
}

// One line, which opens if the value has parts. key: what it is known by, so that it stays open.
export function value(name, type, text, key) {
    const found = parts(text);
    const label = [h('b', {}, name), name ? ' = ' : '', type ? h('small', {}, `${type} `) : null];
    if (!found)
        return h('div', {class: 'leaf'}, ...label, text);
    const details = h('details', {'data-key': key}, h('summary', {}, ...label, text.length > 160 ? text.slice(0, 160) + '…' : text));
    const fill = () => {
        if (details.childElementCount === 1)
            details.append(h('div', {}, found.items.slice(0, ITEMS_SHOWN).map((item, i) => {
                const [inner, rest] = named(item, found.open, i);
                return value(inner, '', rest, `${key}/${i}`);
            }), found.items.length > ITEMS_SHOWN ? h('p', {class: 'dim'}, `${found.items.length - ITEMS_SHOWN} more`) : null));
    };
    details.addEventListener('toggle', () => details.open && fill());
    return details;
}

// The rows of the table locals.
export const variables = (rows, key) => h('div', {class: 'value'}, rows.length ?
    rows.map(row => row.name == null ? h('div', {class: 'dim leaf'}, row.value) : value(row.name, row.type, row.value ?? '', `${key}/${row.name}`)) :
    h('div', {class: 'dim'}, 'This frame binds nothing.'));
