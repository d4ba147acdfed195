// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/koord-rt/koord-rt/daemon/ledger"
	"github.com/koord-rt/koord-rt/model/plan"
)

func explainCommand(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "explain CONTAINER|POD",
		Short: "What was set on a container or pod, by whom, why, and whether the kernel still holds it",
		Long: "Explain a container (id or its beginning, namespace/pod/container) or a pod with its containers (namespace/pod, UID).\n" +
			"KERNEL is the value now, BEFORE what would stand there without koord-rt. The runtime's own status keeps what the kubelet\n" +
			"asked for; the kernel's value is the one in force. Below stand the fields of the node's NodeSLO that these values come from\n" +
			"and that somebody has set for this node, with who it was.",
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return e.explain(args[0]) },
	}
}

// problem is input of the subject that could not be used.
type problem struct {
	Name   string    `json:"name"`
	Key    string    `json:"key"`
	Reason string    `json:"reason"`
	When   time.Time `json:"when"`
}

func (e *env) explain(arg string) error {
	m, err := e.open(nil)
	if err != nil {
		return err
	}
	keep, err := choose(m.records, arg)
	if err != nil {
		return err
	}
	lines := m.lines(keep)
	problems := m.problems(keep)
	if len(lines)+len(problems) == 0 {
		return fmt.Errorf("explain %s: all that the ledger knows of it is gone from this node; ask for a running container", arg)
	}
	agent := e.agentSLO()
	over := overrides(agent, lines)
	if e.output == outJSON {
		err = printJSON(e.out, struct {
			Settings  []line       `json:"settings"`
			Overrides []overridden `json:"overrides,omitempty"`
			Problems  []problem    `json:"problems,omitempty"`
		}{lines, over, problems})
	} else if err = e.explainTable(lines); err == nil {
		e.printOverrides(agent, over)
		e.printProblems(problems)
	}
	if err != nil {
		return err
	}
	return e.warnSilent()
}

func (e *env) explainTable(lines []line) error {
	for start := 0; start < len(lines); {
		end := start + 1
		for end < len(lines) && lines[end].Target == lines[start].Target {
			end++
		}
		e.header(&lines[start])
		rows := make([][]string, 0, end-start)
		for i := range lines[start:end] {
			rows = append(rows, explainRow(&lines[start+i]))
		}
		if err := printSentences(e.out, []string{"KNOB", "KERNEL", "WANTED", "BEFORE", "DRIFT", "OWNER", "VIA", "WHEN", "REASON"}, rows); err != nil {
			return err
		}
		fmt.Fprintln(e.out)
		start = end
	}
	return nil
}

func (e *env) printProblems(problems []problem) {
	for _, p := range problems {
		fmt.Fprintf(e.out, "problem: %s: %s: %s\n", cell(p.Name), cell(p.Key), cell(p.Reason))
	}
}

func (e *env) header(l *line) {
	fmt.Fprint(e.out, cell(l.Target.String()))
	if l.ID != "" {
		fmt.Fprintf(e.out, "  id %.12s", cell(l.ID))
	}
	if l.Cgroup != "" && l.Name != "" {
		fmt.Fprintf(e.out, "  cgroup %s", l.Cgroup)
	}
	fmt.Fprintln(e.out)
}

func explainRow(l *line) []string {
	reason := l.Reason
	if l.Err != "" {
		reason += " [" + l.Err + "]"
	}
	if l.Proof != "" {
		reason += " [at start: " + l.Proof + "]"
	}
	if d := l.Last; d != nil {
		reason += fmt.Sprintf(" [last drift %s: %s by %s]", d.When.UTC().Format(time.RFC3339), d.Found, strings.ReplaceAll(d.Source, "-", " "))
	}
	return []string{knobKey(l), l.Kernel, l.Want, l.Before, l.Drift, l.Owner, l.Via, l.When.UTC().Format(time.RFC3339), reason}
}

func knobKey(l *line) string {
	if l.Key == "" {
		return l.Knob
	}
	return l.Knob + "[" + l.Key + "]"
}

// problems are the newest of each key.
func (m *machine) problems(keep func(*plan.Target) bool) []problem {
	var out []problem
	for _, e := range ledger.NewIndex(m.records, m.applier.Found).Entries() {
		if e.Problem != nil && keep(&e.Target) && m.isHere(e.Target) {
			out = append(out, problem{Name: e.Target.Name, Key: e.Problem.Key, Reason: e.Problem.Reason, When: e.Problem.Time})
		}
	}
	return out
}

// isHere reports whether the target's cgroup exists.
func (m *machine) isHere(t plan.Target) bool {
	probe := ledger.Entry{Target: t, Knob: plan.CPUShares.String()}
	return m.existsAs(&probe, "", 0)
}
