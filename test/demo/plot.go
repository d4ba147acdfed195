// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build linux

package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Eight heights of a bar; the lowest is next to nothing.
const (
	heights      = "▁▂▃▄▅▆▇█"
	heightsASCII = "_.-=+*%#"
)

// axisEvery is between two figures of the time axis, where there is room.
const axisEvery = 5 * time.Second

// recording is the samples of a run with the moments at which the load came and went; 0 for not yet.
type recording struct {
	samples    []sample
	came, went time.Duration
	// lends: the samples tell what the node lends, too.
	lends bool
	// enough is what BE must be allowed for the load to take any of it.
	enough float64
}

// line of the plot: its name and its values.
type line struct {
	name   string
	values []float64
}

// plot draws a row of bars for each figure over one time axis. Where there are more samples than columns, a column is the
// mean of some.
func (r *recording) plot(s *screen) {
	const left = 14 // names and indent
	per := (len(r.samples) + s.width - left - 1) / max(s.width-left, 1)
	ls, be, may, lent := line{name: "LS used"}, line{name: "BE used"}, line{name: "BE may use"}, line{name: "batch-cpu"}
	var at []time.Duration
	full := 0.0
	for i := 0; i < len(r.samples); i += max(per, 1) {
		m := mean(r.samples[i:min(i+max(per, 1), len(r.samples))])
		at = append(at, r.samples[i].at)
		ls.values, be.values, may.values = append(ls.values, m.ls), append(be.values, m.be), append(may.values, m.may)
		lent.values = append(lent.values, m.lent)
		for _, v := range []float64{m.ls, m.be, m.may, m.lent} {
			if !math.IsInf(v, 0) {
				full = max(full, v)
			}
		}
	}
	lines := []line{ls, be, may}
	if r.lends {
		lines = append(lines, lent)
	}
	for _, l := range lines {
		style := dim
		if l.name == may.name || l.name == lent.name {
			style = green
		}
		s.line("  %-10s  %s", l.name, s.paint(style, bars(l.values, full, s.pick(heights, heightsASCII))))
	}
	var axis, marks []label
	for t := time.Duration(0); len(at) > 0 && t <= at[len(at)-1]; t += axisStep(max(per, 1)) {
		axis = append(axis, label{column(at, t), strconv.Itoa(int(t.Seconds()))})
	}
	arrow := s.pick("↑", "^")
	marks = append(marks, label{column(at, r.came), arrow + " load comes"}, label{column(at, r.went), arrow + " load goes"})
	s.line("  %-10s  %s", "seconds", spread(axis))
	s.line("  %-10s  %s", "", s.paint(bold, spread(marks)))
	s.line("  %s", s.paint(dim, fmt.Sprintf("A full bar is %.2f CPUs.", full)))
}

// axisStep is between two figures of the time axis where a column is so many samples: room for three digits.
func axisStep(per int) time.Duration {
	step := axisEvery
	for step < 4*every*time.Duration(per) {
		step *= 2
	}
	return step
}

// bars draws values by their part of full; steps are the heights in ascending order.
func bars(values []float64, full float64, steps string) string {
	runes := []rune(steps)
	var b strings.Builder
	for _, v := range values {
		part := 0.0
		if full > 0 {
			part = min(max(v/full, 0), 1)
		}
		b.WriteRune(runes[min(int(part*float64(len(runes))), len(runes)-1)])
	}
	return b.String()
}

// column is the first one that shows the moment t or later.
func column(at []time.Duration, t time.Duration) int {
	for i, a := range at {
		if a >= t {
			return i
		}
	}
	return len(at)
}

// label is a text that begins at a column.
type label struct {
	column int
	text   string
}

// spread puts labels into one line; one that would run into the text before it moves to the right.
func spread(labels []label) string {
	var b strings.Builder
	width := 0
	for _, l := range labels {
		gap := l.column - width
		if width > 0 {
			gap = max(gap, 1)
		}
		b.WriteString(strings.Repeat(" ", max(gap, 0)) + l.text)
		width += max(gap, 0) + utf8.RuneCountInString(l.text)
	}
	return b.String()
}

// mean of samples; its time is the last one's.
func mean(list []sample) sample {
	var m sample
	for _, s := range list {
		n := float64(len(list))
		m = sample{s.at, m.ls + s.ls/n, m.be + s.be/n, m.may + s.may/n, m.lent + s.lent/n, m.others + s.others/n}
	}
	return m
}

// settling is what the end of a phase is averaged over, in samples.
const settling = 4

// moment is the end of a phase.
type moment struct {
	name     string
	from, to time.Duration
	sample
}

// phase is a part of the samples.
type phase struct {
	name       string
	begin, end int
}

func (r *recording) phases() []phase {
	came, went := r.index(r.came), r.index(r.went)
	return []phase{{"before the load", 0, came}, {"under the load", came, went}, {"after the load", went, len(r.samples)}}
}

// moments are the ends of the three phases.
func (r *recording) moments() []moment {
	var out []moment
	for _, p := range r.phases() {
		if from := max(p.begin, p.end-settling); from < p.end {
			list := r.samples[from:p.end]
			out = append(out, moment{p.name, list[0].at, list[len(list)-1].at, mean(list)})
		}
	}
	return out
}

// index is the number of samples that were taken before t.
func (r *recording) index(t time.Duration) int {
	n := 0
	for n < len(r.samples) && r.samples[n].at <= t {
		n++
	}
	return n
}

// table prints the moments.
func (r *recording) table(s *screen) {
	var rows [][]string
	for _, m := range r.moments() {
		row := []string{m.name, fmt.Sprintf("%.1f-%.1f s", m.from.Seconds(), m.to.Seconds()), amount(m.ls), amount(m.be), amount(m.may)}
		if r.lends {
			row = append(row, amount(m.lent))
		}
		rows = append(rows, row)
	}
	head := []string{"CPUs", "average of", "LS used", "BE used", "BE may use"}
	if r.lends {
		head = append(head, "batch-cpu")
	}
	s.table(head, rows, []string{"", dim, "", "", bold + ";" + green, bold + ";" + green})
}

func amount(cpus float64) string {
	if math.IsInf(cpus, 0) {
		return "no limit"
	}
	return strconv.FormatFloat(cpus, 'f', 2, 64)
}

// Parts of what BE had before: below yields it has given way, from back on it has it again.
const (
	yields = 0.75
	back   = 0.9
)

// reactions are how long after the load came BE was allowed less, and how long after it went it had nine tenths of what it
// had; 0 for what did not happen.
func (r *recording) reactions() (yielded, returned time.Duration) {
	return r.reaction(func(s sample) float64 { return s.may })
}

// lending is the same of what the node lends.
func (r *recording) lending() (lower, again time.Duration) {
	return r.reaction(func(s sample) float64 { return s.lent })
}

// lentText tells of lending.
func (r *recording) lentText() string {
	switch lower, again := r.lending(); {
	case lower == 0:
		return "batch-cpu did not fall by a quarter while the load was on the machine."
	case again == 0:
		return fmt.Sprintf("batch-cpu fell %.0f s after the load came. It is not back yet.", lower.Seconds())
	default:
		return fmt.Sprintf("batch-cpu fell %.0f s after the load came and was back %.0f s after it went: "+
			"the node reports every 30 s what it used in the last minute.", lower.Seconds(), again.Seconds())
	}
}

func (r *recording) reaction(of func(sample) float64) (yielded, returned time.Duration) {
	if r.came == 0 {
		return 0, 0
	}
	before := of(mean(r.samples[max(0, r.index(r.came)-settling):r.index(r.came)]))
	for _, s := range r.samples {
		switch {
		case s.at > r.came && yielded == 0 && of(s) < before*yields:
			yielded = s.at - r.came
		case r.went != 0 && s.at > r.went && returned == 0 && of(s) >= before*back:
			returned = s.at - r.went
		}
	}
	return yielded, returned
}
