// Lines over time, by uPlot, which is a script of its own beside this one.

import {h} from '/dom.js';

const COLOURS = ['#2a78d6', '#c2410c', '#17803d', '#8b3fc6', '#a16207', '#0e7490', '#be185d', '#5b6470'];

// series: [{label, values}]; times in seconds since 1970. Gives {element, set(times, series)}.
export function plot(labels, {width = 640, height = 200, format = value => value == null ? '' : String(+value.toPrecision(4)), x = {}} = {}) {
    const element = h('div', {class: 'plot'});
    const of = name => () => getComputedStyle(document.body).getPropertyValue(name), line = of('--line'), text = of('--dim');
    const axis = {stroke: text, grid: {stroke: line, width: 1}, ticks: {stroke: line, width: 1}};
    const chart = new uPlot({
        width, height, scales: {x}, cursor: {y: false},
        axes: [axis, {...axis, size: 70, values: (_, ticks) => ticks.map(format)}],
        series: [{}, ...labels.map((label, i) => ({label, stroke: COLOURS[i % COLOURS.length], width: 1.5, spanGaps: true, value: (_, value) => format(value)}))],
    }, [[], ...labels.map(() => [])], element);
    return {element, set: columns => chart.setData(columns)};
}
