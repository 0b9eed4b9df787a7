// Debugs Python processes that run already, by probefs-dap, over the files of a probefs mount.
'use strict';
const fs = require('fs');
const vscode = require('vscode');

const ROWS = 'SELECT pid, python, command, state, rank, cpu_user + cpu_system AS cpu FROM process';
const CONFIGURATION = {type: 'probefs', request: 'attach', name: 'Python: running process'};

const setting = name => vscode.workspace.getConfiguration('probefs').get(name);

/** What a file that is written to answers: one handle, one command. */
async function ask(path, text) {
    const file = await fs.promises.open(path, 'r+');
    try {
        await file.write(text);
        const parts = [], buffer = Buffer.alloc(1 << 16);
        for (let read; (read = (await file.read(buffer, 0, buffer.length, null)).bytesRead) > 0;)
            parts.push(Buffer.from(buffer.subarray(0, read)));
        return Buffer.concat(parts).toString();
    } finally {
        await file.close();
    }
}

/** The Python processes that may be looked at, the busiest first; ranks of a job before them. */
async function processes(mount) {
    const rows = JSON.parse(await ask(`${mount}/all/query`, `-- format: json\n${ROWS};\n`));
    const order = row => row.rank === null ? Infinity : row.rank;
    return rows.sort((a, b) => order(a) - order(b) || b.cpu - a.cpu);
}

/** The command as one reads it: without the directories of the interpreter and the script. */
function brief(command) {
    const [program, ...words] = (command || '?').split(' ');
    const script = words.findIndex(word => !word.startsWith('-'));
    return [program, ...words].map((word, i) => i === 0 || i === script + 1 ? word.split('/').pop() : word).join(' ');
}

function describe(row) {
    const rank = row.rank === null ? '' : `rank ${row.rank}, `;
    return `${rank}${row.pid}, Python ${row.python}, ${Number(row.cpu).toFixed(0)} s`;
}

/** Why there is nothing to show, for a person. */
function why(mount, error) {
    return ['ENOENT', 'ENOTCONN'].includes(error.code)
        ? `No probefs is mounted on ${mount}. Mount it (probefs ${mount}), or say where it is in the setting probefs.mount.`
        : `${mount}: ${error.message}`;
}

/** Asks which; undefined: none. */
async function pickProcess(configuration) {
    const mount = configuration && configuration.mount || setting('mount');
    try {
        const items = (await processes(mount)).map(row =>
            ({label: brief(row.command), description: describe(row), detail: row.command, row}));
        const picked = await vscode.window.showQuickPick(items, {
            placeHolder: items.length ? 'Which Python process?' : `No Python process can be seen below ${mount}`,
            matchOnDescription: true, matchOnDetail: true});
        return picked && String(picked.row.pid);
    } catch (error) {
        vscode.window.showErrorMessage(why(mount, error));
        return undefined;
    }
}

/** The processes, in the side bar. */
class Processes {
    constructor() {
        this.changed = new vscode.EventEmitter();
        this.onDidChangeTreeData = this.changed.event;
    }

    async load() {
        try {
            this.rows = await processes(setting('mount'));
        } catch {
            this.rows = []; // the view says what to do
        }
    }

    /** Those that are seen stay until the next ones are there: who clicks meanwhile means one of them. */
    async refresh() {
        await this.load();
        this.changed.fire();
    }

    async getChildren() {
        if (!this.rows)
            await this.load();
        return this.rows;
    }

    getTreeItem(row) {
        const item = new vscode.TreeItem(brief(row.command));
        item.id = String(row.pid); // the same row the next time
        item.description = describe(row);
        item.tooltip = row.command;
        item.contextValue = row.rank === null ? 'process' : 'rank';
        return item;
    }
}

async function attach(row, more) {
    const pid = row ? String(row.pid) : await pickProcess();
    if (!pid)
        return false;
    const name = row ? `${brief(row.command)} (${pid})` : `${CONFIGURATION.name} ${pid}`;
    const folder = vscode.workspace.workspaceFolders && vscode.workspace.workspaceFolders[0];
    return vscode.debug.startDebugging(folder, {...CONFIGURATION, name, processId: pid, ...more});
}

/** F5 without a launch.json, and the list of what may be started. */
const provider = {
    provideDebugConfigurations: () => [{...CONFIGURATION, processId: '${command:pickProcess}'}],
    resolveDebugConfiguration: (_, configuration) =>
        configuration.type ? configuration : {...CONFIGURATION, processId: '${command:pickProcess}'},
};

exports.activate = context => {
    const {Dynamic} = vscode.DebugConfigurationProviderTriggerKind;
    const view = new Processes();
    context.subscriptions.push(
        vscode.commands.registerCommand('probefs.pickProcess', pickProcess),
        vscode.commands.registerCommand('probefs.attach', row => attach(row)),
        vscode.commands.registerCommand('probefs.attachRanks', row => attach(row, {ranks: true})),
        vscode.commands.registerCommand('probefs.refresh', () => view.refresh()),
        vscode.window.registerTreeDataProvider('probefs.processes', view),
        vscode.debug.onDidTerminateDebugSession(() => view.refresh()),
        vscode.debug.registerDebugConfigurationProvider('probefs', provider),
        vscode.debug.registerDebugConfigurationProvider('probefs', provider, Dynamic),
        vscode.debug.registerDebugAdapterDescriptorFactory('probefs', {
            createDebugAdapterDescriptor: ({configuration}) =>
                new vscode.DebugAdapterExecutable(setting('adapter'), ['--', configuration.mount || setting('mount')]),
        }));
};
