// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestDemoCluster runs the demo of a whole cluster as the README says. It fails where the demo does, where it leaves a part or a figure out, as it
// does on a machine that others use, and where anything stays behind.
func TestDemoCluster(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "make", "-C", "../..", "demo-cluster").CombinedOutput()
	text := string(out)
	t.Logf("%s", text)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		"kube-scheduler and kube-controller-manager run", "the API server calls its webhooks", "1. Lend out what production does not use",
		"2. A profile turns a Deployment's pods into best-effort ones", "its pod was admitted, placed by kube-scheduler on",
		"3. From a ConfigMap to the kernel", "4. Load comes to the LS pod, and goes", "The decision under the load, from koordlet's /events: ", "\nDone in ",
	} {
		if !strings.Contains(text, part) {
			t.Errorf("the demo does not show %q", part)
		}
	}
	last := 0.0 // who tells, tells later than who told it
	for _, who := range []string{`NodeSLO node0`, `the kernel`, `NodeSLO's status`} {
		after := demoFigures(t, text, who+` +([\d.]+)  `)[0]
		if after < last || after > 10 {
			t.Errorf("%s after %.2f s, want from %.2f to 10", who, after, last)
		}
		last = after
	}
	const figure = ` +([\d.]+)`
	var phases [3][]float64 // LS used, BE used, BE may use, batch-cpu
	for i, when := range []string{"before", "under", "after"} {
		phases[i] = demoFigures(t, text, when+` the load +[\d.]+-[\d.]+ s`+strings.Repeat(figure, 4)+`$`)
		// Of the line of averages BE used may be more than what it may use, where the quota was cut or written in their two seconds.
		if spent := demoFigures(t, text, when+` the load`+figure+figure+`$`); spent[0] > spent[1]+0.01 { // both are rounded
			t.Errorf("BE used %.2f CPU seconds %s the load, and its quota was filled with %.2f at most", spent[0], when, spent[1])
		}
	}
	calm, load, end := phases[0], phases[1], phases[2]
	if load[0] < 0.4 || calm[0] > load[0]/2 || end[0] > load[0]/2 {
		t.Errorf("LS used %.2f, %.2f and %.2f CPUs before, under and after the load", calm[0], load[0], end[0])
	}
	for i, what := range map[int]string{2: "BE was allowed", 3: "the node lent"} {
		if load[i] > 0.75*calm[i] || load[i] >= end[i] {
			t.Errorf("%s %.2f, %.2f and %.2f CPUs before, under and after the load", what, calm[i], load[i], end[i])
		}
	}
	demoIsGone(t, text)
}

// demoFigures are the figures of a line of the demo's screen.
func demoFigures(t *testing.T, text, line string) (out []float64) {
	t.Helper()
	m := regexp.MustCompile(`(?m)^  ` + line).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("no line %s in what the demo shows", line)
	}
	for _, f := range m[1:] {
		n, err := strconv.ParseFloat(f, 64)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, n)
	}
	return out
}
