// extension.js EXTENSION MOUNT: runs the extension with a VS Code that notes what it is asked for. Each line of JSON on
// standard input is a call of `said` below, and answered by one.
const [extension, mount] = process.argv.slice(2);
const Module = require('module');
const readline = require('readline');
const commands = {}, settings = {mount, adapter: '/adapter'}, asked = [];
let views, factory, picks;
const note = (what, answer) => (...words) => { asked.push([what, ...words]); return answer; };
const vscode = {
    EventEmitter: class { event = () => {}; fire = note('refresh'); },
    TreeItem: class { constructor(label) { this.label = label; } },
    DebugAdapterExecutable: class { constructor(...words) { this.words = words; } },
    DebugConfigurationProviderTriggerKind: {Dynamic: 2},
    workspace: {getConfiguration: () => ({get: name => settings[name]}), workspaceFolders: [{name: 'folder'}]},
    window: {
        registerTreeDataProvider: (_, given) => { views = given; },
        showErrorMessage: note('error'),
        showQuickPick: items => items.find(item => item.description.includes(picks)),
    },
    commands: {registerCommand: (name, run) => { commands[name] = run; }},
    debug: {
        startDebugging: note('start', true),
        onDidTerminateDebugSession: () => {},
        registerDebugConfigurationProvider: () => {},
        registerDebugAdapterDescriptorFactory: (_, given) => { factory = given; },
    },
};
const load = Module._load;
Module._load = (name, ...more) => name === 'vscode' ? vscode : load(name, ...more);
require(extension).activate({subscriptions: []});

/** What is seen once the list has been read anew. */
async function rows() {
    await views.refresh();
    asked.pop();
    return views.getChildren();
}

const said = {
    rows: async () => (await rows()).map(row => [row.pid, views.getTreeItem(row)]),
    run: async (name, pid) => {
        const row = pid && (await rows()).find(one => one.pid === pid);
        return commands[name](row);
    },
    pick: (name, part) => { picks = part; return commands[name](); },
    asked: () => asked.splice(0),
    adapter: configuration => factory.createDebugAdapterDescriptor({configuration}).words,
    mount: path => { settings.mount = path; },
};
const lines = readline.createInterface({input: process.stdin});
lines.on('line', async line => {
    const [name, ...words] = JSON.parse(line);
    try {
        console.log(JSON.stringify(await said[name](...words) ?? null));
    } catch (error) {
        console.log(JSON.stringify({failed: String(error.stack)}));
    }
});
