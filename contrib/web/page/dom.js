// Making elements. What comes from a process is only ever a text node.

// h('a', {href: '#/'}, 'text', h('b')): an element; onclick and the like are listeners, the rest attributes.
export function h(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes))
        if (name.startsWith('on'))
            element.addEventListener(name.slice(2), value);
        else if (value === true)
            element.setAttribute(name, '');
        else if (value !== false && value != null)
            element.setAttribute(name, value);
    element.append(...children.flat().filter(child => child != null && child !== false));
    return element;
}

// Puts new children in the place of the old ones, unless they show the same; who had the focus has it again, by data-key.
export function show(element, ...children) {
    const focused = element.contains(document.activeElement) && document.activeElement.dataset.key;
    const opened = new Set([...element.querySelectorAll('details[open][data-key]')].map(one => one.dataset.key));
    element.replaceChildren(...children.flat().filter(child => child != null && child !== false));
    for (const one of element.querySelectorAll('details[data-key]'))
        one.open ||= opened.has(one.dataset.key);
    if (focused)
        [...element.querySelectorAll('[data-key]')].find(one => one.dataset.key === focused)?.focus();
}

export const button = (words, onclick, attributes = {}) => h('button', {type: 'button', onclick, ...attributes}, words);
export const words = error => h('div', {class: 'note bad', role: 'alert'}, h('pre', {}, error.message));
export const empty = (...children) => h('div', {class: 'empty'}, ...children);

// A box to be ticked; set(on) is told.
export const tick = (words, on, set) => h('label', {}, h('input', {type: 'checkbox', checked: on, onchange: event => set(event.target.checked)}), ` ${words}`);

// A box with a button, which Ctrl-Enter presses, too.
export function box(attributes, run) {
    return h('textarea', {
        spellcheck: 'false', autocapitalize: 'off', ...attributes,
        onkeydown: event => {
            if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
                event.preventDefault();
                run();
            }
        },
    });
}

const ROWS_SHOWN = 1000;

export function table(rows, cell = {}) {
    if (!rows.length)
        return h('p', {class: 'dim'}, 'No rows.');
    const names = Object.keys(rows[0]);
    const shown = (row, name) => {
        const value = row[name];
        const made = cell[name]?.(value, row) ?? (value == null ? '' : String(value));
        return h('td', {class: typeof value === 'number' ? 'number' : null, title: value ?? ''}, made);
    };
    return h('div', {class: 'table', tabindex: '0'},
        h('table', {},
            h('thead', {}, h('tr', {}, names.map(name => h('th', {scope: 'col'}, name)))),
            h('tbody', {}, rows.slice(0, ROWS_SHOWN).map(row => h('tr', {}, names.map(name => shown(row, name)))))),
        rows.length > ROWS_SHOWN ? h('p', {class: 'dim'}, `${rows.length - ROWS_SHOWN} more rows are not shown.`) : null);
}

export const bytes = n => {
    if (n == null)
        return '';
    const unit = Math.min(4, Math.max(0, Math.floor(Math.log2(n || 1) / 10)));
    return `${(n / 1024 ** unit).toFixed(unit && n / 1024 ** unit < 10 ? 1 : 0)} ${['B', 'KiB', 'MiB', 'GiB', 'TiB'][unit]}`;
};
export const clock = ts => ts == null ? '' : new Date(ts * 1000).toLocaleTimeString([], {hour12: false});
export const base = file => (file ?? '').replace(/.*\//, '');
// A command line without the directory of its program.
export const short = command => (command ?? '').replace(/^\S*\//, '');
