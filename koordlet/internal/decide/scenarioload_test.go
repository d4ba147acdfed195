// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package decide_test

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/api/strategy"
)

// load is what happens on a node of paper by itself.
type load struct {
	// needs are by "SUBJECT NEED", in the order of the file.
	needs map[string][]need
	// events are by second: "POD arrives", "POD ends", "POD calls", "strategy NAME".
	events map[int][]string
}

// need is what somebody would use: from one second to another on the way from one value to another, and the latter from then on.
type need struct {
	from, to    int
	first, last float64
	// whose use of CPUs must be above that for it to be there: a pod's or that of "be", "" without such a condition.
	whose string
	above float64
}

// needs that a line may name.
var needNames = []string{"cpu", "memory", "cache", "stall"}

// parseLoad reads lines, "#" begins a comment:
//
//	WHEN SUBJECT NEED VALUE [while be|POD > CPUS]
//	WHEN POD arrives|ends|calls
//	WHEN strategy NAME
//
// WHEN is "30s", or "30s..60s" for a value that moves ("1Gi->6Gi") meanwhile. SUBJECT is POD/CONTAINER, POD for its only one, or "system".
// NEED is cpu (CPUs), memory (what is not file cache), cache, or stall (the part of the time that a pod's tasks wait for a CPU). Who
// arrives was not there before; who calls has the kernel's pressure trigger fire half a second after that.
func parseLoad(text string) (load, error) {
	l := load{needs: map[string][]need{}, events: map[int][]string{}}
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if len(f) < 3 {
			return l, fmt.Errorf("%q: three words at least", strings.TrimSpace(line))
		}
		if err := l.line(f); err != nil {
			return l, fmt.Errorf("%q: %w", strings.TrimSpace(line), err)
		}
	}
	return l, nil
}

func (l *load) line(f []string) error {
	from, to, err := span(f[0])
	if err != nil {
		return err
	}
	if len(f) == 3 && (f[1] == "strategy" || slices.Contains([]string{"arrives", "ends", "calls"}, f[2])) {
		l.events[from] = append(l.events[from], f[1]+" "+f[2])
		return nil
	}
	n := need{from: from, to: to}
	switch {
	case len(f) == 8 && f[4] == "while" && f[6] == ">":
		n.whose = f[5]
		if n.above, err = strconv.ParseFloat(f[7], 64); err != nil {
			return err
		}
	case len(f) != 4:
		return fmt.Errorf("neither four words nor a condition behind them")
	}
	if !slices.Contains(needNames, f[2]) {
		return fmt.Errorf("%q is none of %v", f[2], needNames)
	}
	first, last, moves := strings.Cut(f[3], "->")
	if !moves {
		last = first
	}
	if moves != (from != to) {
		return fmt.Errorf("a value that moves takes from one second to another")
	}
	var err2 error
	n.first, err = amountOf(first)
	n.last, err2 = amountOf(last)
	if err != nil || err2 != nil {
		return fmt.Errorf("%w %w", err, err2)
	}
	key := f[1] + " " + f[2]
	l.needs[key] = append(l.needs[key], n)
	return nil
}

// span reads "30s" or "30s..60s".
func span(text string) (from, to int, err error) {
	first, last, two := strings.Cut(text, "..")
	if from, err = seconds(first); err != nil {
		return 0, 0, err
	}
	if to = from; two {
		if to, err = seconds(last); err == nil && to <= from {
			err = fmt.Errorf("%q goes backwards", text)
		}
	}
	return from, to, err
}

// amountOf reads a number, a percentage as a part of one, or bytes.
func amountOf(text string) (float64, error) {
	if part, percent := strings.CutSuffix(text, "%"); percent {
		v, err := strconv.ParseFloat(part, 64)
		return v / 100, err
	}
	if v, err := strconv.ParseFloat(text, 64); err == nil {
		return v, nil
	}
	v, err := strategy.ParseQuantity(text)
	return float64(v), err
}

// at is what is needed in a second, as of what everybody used in the one before.
func (l *load) at(subject, name string, second int, cpus func(whose string) float64) float64 {
	value := 0.0
	for _, n := range l.needs[subject+" "+name] {
		switch {
		case second < n.from:
		case n.whose != "" && cpus(n.whose) <= n.above:
			value = 0
		case second >= n.to:
			value = n.last
		default:
			value = n.first + (n.last-n.first)*float64(second-n.from)/float64(n.to-n.from)
		}
	}
	return value
}

// want is one line of what must come of it.
type want struct {
	line        string
	from, to    int
	subject, op string
	value       string
	looked      bool
}

// parseWants reads lines "WHEN SUBJECT OPERATOR VALUE": in each second of WHEN the subject, as paper.look has it, stands so to the value.
// Operators are <=, >= and = for numbers, = for words, and within and apart for sets of CPUs.
func parseWants(text string) ([]want, error) {
	var out []want
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		w := want{line: strings.Join(f, " ")}
		if len(f) < 4 || !slices.Contains([]string{"<=", ">=", "=", "within", "apart"}, f[len(f)-2]) {
			return nil, fmt.Errorf("%q is not WHEN SUBJECT OPERATOR VALUE", w.line)
		}
		w.subject, w.op, w.value = strings.Join(f[1:len(f)-2], " "), f[len(f)-2], f[len(f)-1]
		var err error
		if w.from, w.to, err = span(f[0]); err != nil {
			return nil, fmt.Errorf("%q: %w", w.line, err)
		}
		out = append(out, w)
	}
	return out, nil
}

// check says what is instead of what is wanted, "" where it has come true.
func (w *want) check(p *paper) string {
	is, ok := p.look(w.subject)
	if !ok {
		return "nobody tells"
	}
	if is.holds(w.op, w.value) {
		return ""
	}
	return "it is " + is.String()
}

// nearly is how far two numbers that are the same may be apart: milli-CPUs and pages are rounded.
const nearly = 0.005

func same(a, b float64) bool { return math.Abs(a-b) <= nearly*max(1, math.Abs(b)) }
