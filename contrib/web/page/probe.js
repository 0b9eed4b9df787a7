// The files of the mount over HTTP: read, write, ask by SQL, follow. The link that was opened has the token behind its
// #, where no server sees it; from then on it is kept by the browser for this address, and sent with each request.

const KEPT = 'probefs-token';

export class Refused extends Error {
    constructor(words, errno, status) {
        super(words);
        this.errno = errno;
        this.status = status;
    }
}

// Takes the token out of the address, where it would stay in the history.
export function takeToken() {
    const given = /^#token=([0-9a-f]+)$/.exec(location.hash);
    if (given) {
        localStorage.setItem(KEPT, given[1]);
        history.replaceState(null, '', location.pathname + '#/');
    }
}

async function request(path, options = {}) {
    const url = options.url ?? '/probe/' + path.split('/').map(encodeURIComponent).join('/') +
        (options.visit ? `?append&visit=${options.visit}` : options.append ? '?append' : '');
    let response;
    try {
        response = await fetch(url, {...options, headers: {Authorization: `Bearer ${localStorage.getItem(KEPT)}`}});
    } catch (error) {
        if (error.name === 'AbortError')
            throw error;
        throw new Refused('probefs-web does not answer. Is it still running? Start it again, and open its new link.');
    }
    if (!response.ok) {
        const words = (await response.text()).trim();
        throw new Refused(words || response.statusText, response.headers.get('X-Probe-Errno'), response.status);
    }
    return response;
}

// What the file says.
export const read = async (path, signal) => (await request(path, {signal})).text();

// What it says; '' if it can't be read now.
export async function readIfThere(path, signal) {
    try {
        return await read(path, signal);
    } catch (error) {
        if (error instanceof Refused && error.status !== 401)
            return '';
        throw error;
    }
}

// The names in a directory; those of directories end in /.
export const list = async (path, signal) => (await read(path, signal)).split('\n').filter(Boolean);

// Writes, as > does, or >> with append, and resolves with what that handle answers.
export const write = async (path, text, {signal, append} = {}) =>
    (await request(path, {method: 'POST', body: text, signal, append})).text();

// This page, to the server: a stream that ends with it, whatever ends the browser. Made when it is first needed.
let visit = null;

function stay() {
    const name = [...crypto.getRandomValues(new Uint8Array(16))].map(byte => byte.toString(16).padStart(2, '0')).join('');
    const begun = request('', {url: `/visit/${name}`}).then(async response => {
        const reader = response.body.getReader();
        await reader.read(); // it is there
        const rest = async () => {
            while (!(await reader.read()).done)
                ;
        };
        rest().catch(() => {}).finally(() => { visit = null; });
        return name;
    });
    begun.catch(() => { visit = null; });
    return begun;
}

// The same as >>, of lines with `here` in front: what they set, and whom they hold, is let go when the page is closed.
export async function writeHere(path, text, {signal} = {}) {
    visit ??= stay();
    return (await request(path, {method: 'POST', body: text, signal, visit: await visit})).text();
}

// The rows that a SELECT gives, as objects.
export async function query(directory, sql, signal) {
    const text = await write(`${directory}/query`, `-- format: json\n${sql}\n`, {signal});
    return text.trim() ? JSON.parse(text) : [];
}

// Calls each(event) for what happens, until the signal, or the end of the process, which resolves.
export async function follow(path, signal, each) {
    const response = await request(path, {signal});
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = '';;) {
        const {done, value} = await reader.read();
        if (done)
            return;
        const lines = (rest + value).split('\n');
        rest = lines.pop();
        for (const line of lines)
            if (line.startsWith('data: '))
                each(JSON.parse(line.slice(6)));
    }
}

// A text in SQL.
export const quote = text => `'${String(text).replaceAll("'", "''")}'`;
