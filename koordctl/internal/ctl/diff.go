// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/model/plan"
)

func diffCommand(e *env) *cobra.Command {
	var all, exitCode bool
	cmd := &cobra.Command{
		Use:   "diff",
		Short: "Where the kernel does not hold what is wanted, over the whole node",
		Long: "Where the kernel does not hold what is wanted, over the whole node. Below the settings stand the fields of the node's NodeSLO that\n" +
			"their values come from and that somebody has set for this node, with who it was.",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return e.diff(all, exitCode)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "list also what is as wanted")
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "exit with 1 when there is drift")
	return cmd
}

func (e *env) diff(all, exitCode bool) error {
	m, err := e.open(nil)
	if err != nil {
		return err
	}
	if len(m.records) == 0 {
		// "0 of 0" would be good news of a node, or a run directory, where nobody has been.
		if _, err := e.known(); err != nil {
			return err
		}
	}
	lines := m.lines(func(*plan.Target) bool { return true })
	shown := make([]line, 0, len(lines))
	drifted := 0
	for _, l := range lines {
		differs := l.Drift == driftYes || l.Drift == driftFailed
		if differs {
			drifted++
		}
		if all || differs {
			shown = append(shown, l)
		}
	}
	if err := e.printDiff(shown, len(lines), drifted); err != nil {
		return err
	}
	if exitCode && drifted > 0 {
		return ErrFound
	}
	return nil
}

func (e *env) printDiff(shown []line, total, drifted int) error {
	agent := e.agentSLO()
	if e.output == outJSON {
		return printJSON(e.out, withOverrides(agent, shown))
	}
	if len(shown) > 0 {
		rows := make([][]string, 0, len(shown))
		for i := range shown {
			l := &shown[i]
			reason := l.Reason
			if l.Err != "" {
				reason = l.Err
			}
			rows = append(rows, []string{l.Target.String(), knobKey(l), l.Kernel, l.Want, l.Drift, l.Owner, reason})
		}
		if err := printTable(e.out, []string{"TARGET", "KNOB", "KERNEL", "WANTED", "DRIFT", "OWNER", "REASON"}, rows); err != nil {
			return err
		}
	}
	e.printOverrides(agent, overrides(agent, shown))
	fmt.Fprintf(e.out, "%d of %d settings differ from the kernel\n", drifted, total)
	return nil
}

// owned is a setting with the fields of the NodeSLO that it was made from and that are not the cluster's.
type owned struct {
	line
	Overrides []status.Override `json:"overrides,omitempty"`
}

func withOverrides(s *status.Entry, lines []line) []owned {
	o := newOverriding(s)
	out := make([]owned, 0, len(lines))
	for i := range lines {
		out = append(out, owned{lines[i], o.of(&lines[i])})
	}
	return out
}
