// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// figure is one line of a table.
type figure struct{ name, goal, value, verdict string }

// report of one benchmark.
type report struct {
	name    string
	begin   time.Time
	machine string
	figures []figure
	raw     strings.Builder
	after   string
}

func newReport(name string) *report {
	now := time.Now()
	return &report{name: name, begin: now, machine: machine(now)}
}

// judge adds a figure with a goal.
func (r *report) judge(name, goal, value string, ok bool) {
	verdict := "missed"
	if ok {
		verdict = "ok"
	}
	r.figures = append(r.figures, figure{name, goal, value, verdict})
}

// tell adds a figure without a goal.
func (r *report) tell(name, format string, args ...any) {
	r.figures = append(r.figures, figure{name, "", fmt.Sprintf(format, args...), ""})
}

// note adds a line to the raw file.
func (r *report) note(format string, args ...any) { fmt.Fprintf(&r.raw, format+"\n", args...) }

// finish records how long it took and the load that it left.
func (r *report) finish() {
	r.after = fmt.Sprintf("took         %s\nload after   %s\n", time.Since(r.begin).Round(time.Second), oneLine("/proc/loadavg"))
}

// table is for people.
func (r *report) table() string {
	var b strings.Builder
	width := [3]int{}
	for _, f := range append([]figure{{name: r.name, goal: "goal", value: "value"}}, r.figures...) {
		for i, s := range []string{f.name, f.goal, f.value} {
			width[i] = max(width[i], len([]rune(s)))
		}
	}
	row := func(f figure) {
		line := fmt.Sprintf("%-*s  %-*s  %-*s  %s", width[0], f.name, width[1], f.goal, width[2], f.value, f.verdict)
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	row(figure{name: strings.ToUpper(r.name), goal: "goal", value: "value"})
	for _, f := range r.figures {
		row(f)
	}
	b.WriteString("\n")
	return b.String()
}

// write stores the raw file and puts the table between the markers of README.md, when it has them.
func (r *report) write(dir string) error {
	raw := filepath.Join(dir, "raw")
	if err := os.MkdirAll(raw, 0o755); err != nil {
		return fmt.Errorf("create folder for figures: %w", err)
	}
	text := r.machine + r.after + "\n" + r.table() + r.raw.String()
	if err := os.WriteFile(filepath.Join(raw, r.name+".txt"), []byte(text), 0o644); err != nil {
		return fmt.Errorf("write raw figures: %w", err)
	}
	readme := filepath.Join(dir, "README.md")
	page, err := os.ReadFile(readme)
	if os.IsNotExist(err) {
		return nil // a scratch folder
	}
	if err != nil {
		return fmt.Errorf("read figures: %w", err)
	}
	next, err := r.replace(string(page))
	if err != nil {
		return fmt.Errorf("update %s: %w", readme, err)
	}
	if err := os.WriteFile(readme, []byte(next), 0o644); err != nil {
		return fmt.Errorf("write figures: %w", err)
	}
	return nil
}

// replace puts the figures between the benchmark's markers.
func (r *report) replace(page string) (string, error) {
	open, end := "<!-- figures:"+r.name+" -->\n", "<!-- end:"+r.name+" -->"
	head, rest, ok := strings.Cut(page, open)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return "", fmt.Errorf("no markers %q, %q", strings.TrimSpace(open), end)
	}
	var b strings.Builder
	b.WriteString(head + open)
	fmt.Fprintf(&b, "Taken %s ([raw](raw/%s.txt)).\n\n| figure | goal | value | |\n|---|---|---|---|\n", r.begin.UTC().Format("2006-01-02 15:04 MST"), r.name)
	for _, f := range r.figures {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", f.name, f.goal, f.value, f.verdict)
	}
	return b.String() + end + tail, nil
}
