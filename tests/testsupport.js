// testsupport.js MODULE ADAPTER MOUNT PID FILE LINES: the protocol's own test client goes through a session.
// LINES: JSON, where what is.
const [module_, adapter, mount, pid, file, json] = process.argv.slice(2);
const assert = require('assert');
const {DebugClient} = require(module_);
const lines = JSON.parse(json);
const source = {path: file};
const client = new DebugClient(adapter, mount, 'probefs');
client.defaultTimeout = 120000;

// asks, and waits for the stop that this leads to
const move = async (request, threadId, reason, line) => {
    const [stopped] = await Promise.all([client.assertStoppedLocation(reason, {path: file, line}),
        client[`${request}Request`]({threadId})]);
    return stopped.body.stackFrames;
};

const steps = {
    async begins() {
        await client.start();
        const {body} = await client.initializeRequest();
        assert(body.supportsConfigurationDoneRequest && body.exceptionBreakpointFilters.length >= 2);
        const attached = client.attachRequest({processId: Number(pid)});
        await client.waitForEvent('initialized');
        const set = await client.setBreakpointsRequest({source, breakpoints: [{line: lines.body, hitCondition: '2'},
            {line: lines.return, logMessage: 'total is {total}'}]});
        assert.deepStrictEqual(set.body.breakpoints.map(one => [one.verified, one.line]),
            [[true, lines.body], [true, lines.return]]);
        await client.setExceptionBreakpointsRequest({filters: []});
        await client.configurationDoneRequest();
        await attached;
    },
    async stops() {
        const stopped = client.assertStoppedLocation('breakpoint', {path: file, line: lines.body});
        console.log('go turn(21)');
        this.frames = (await stopped).body.stackFrames;
        const {threads} = (await client.threadsRequest()).body;
        this.thread = threads.find(one => one.name === 'MainThread').id;
    },
    async looks() {
        const {scopes} = (await client.scopesRequest({frameId: this.frames[0].id})).body;
        this.scope = scopes[0].variablesReference;
        const {variables} = (await client.variablesRequest({variablesReference: this.scope})).body;
        assert.strictEqual(variables.find(one => one.name === 'k').value, '1');
        const node = variables.find(one => one.name === 'node');
        const inner = (await client.variablesRequest({variablesReference: node.variablesReference})).body.variables;
        assert(inner.some(one => one.name === 'depth' && one.value === '2'));
    },
    async evaluates() {
        const frameId = this.frames[0].id;
        const {body} = await client.evaluateRequest({expression: 'total + k', frameId, context: 'watch'});
        assert.strictEqual(body.result, '1');
        await assert.rejects(client.evaluateRequest({expression: '1 / 0', frameId}), /ZeroDivisionError/);
    },
    async changes() {
        const {body} = await client.setVariableRequest({variablesReference: this.scope, name: 'total', value: '1000'});
        assert.strictEqual(body.value, '1000');
    },
    async completes() {
        const asked = {text: 'node.d', column: 7, frameId: this.frames[0].id};
        const {targets} = (await client.customRequest('completions', asked)).body;
        assert(targets.some(one => one.label === 'depth'));
    },
    async steps() {
        await move('next', this.thread, 'step', lines.body - 1);
        await move('next', this.thread, 'step', lines.body);
        await client.setFunctionBreakpointsRequest({breakpoints: [{name: 'leaf'}]});
        const [frame] = await move('continue', this.thread, 'function breakpoint', lines.leaf - 1); // as it begins
        assert.strictEqual(frame.name, 'leaf');
        await client.setFunctionBreakpointsRequest({breakpoints: []});
    },
    async logs() {
        const logged = client.assertOutput('stdout', 'total is 1045\n');
        await move('stepOut', this.thread, 'step', lines.return);
        await logged;
        await client.continueRequest({threadId: this.thread});
    },
    async catches() {
        await client.setExceptionBreakpointsRequest({filters: ['raised']});
        const stopped = client.assertStoppedLocation('exception', {path: file, line: lines.raise});
        console.log('go fail(3)');
        await stopped;
        const {body} = await client.exceptionInfoRequest({threadId: this.thread});
        assert.strictEqual(body.exceptionId, 'KeyError');
        await client.continueRequest({threadId: this.thread});
    },
    async leaves() {
        await client.stop(); // which disconnects
    },
};

(async () => {
    const state = {};
    for (const [name, step] of Object.entries(steps)) {
        await step.call(state);
        console.log(`done ${name}`);
    }
})().catch(error => {
    console.error(error);
    process.exit(1);
});
