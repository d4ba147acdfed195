// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/koord-rt/koord-rt/daemon/status"
)

func featuresCommand(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "features",
		Short: "What each feature does on this node: active, degraded and how, unsupported and why",
		Long: "What each feature does on this node, by each daemon; below koordlet's the fields of the node's NodeSLO that others than\n" +
			"koord-manager have written, and who: they hold on this node instead of the cluster's strategy.",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return e.features() },
	}
}

// known are the daemons that have left a status in the run directory; none is an error that says what to do.
func (e *env) known() ([]status.Entry, error) {
	runDir := e.path(e.runDir)
	entries, err := status.ReadAll(runDir, e.path("/proc"))
	if err == nil && len(entries) == 0 {
		err = fmt.Errorf("no status file in %s: start koord-nri, or give its runDir with --run-dir; `koordctl doctor` says what is missing", runDir)
	}
	return entries, err
}

func (e *env) features() error {
	entries, err := e.known()
	if err != nil {
		return err
	}
	if e.output == outJSON {
		if err := printJSON(e.out, entries); err != nil {
			return err
		}
		return e.warnSilent()
	}
	for i := range entries {
		if err := e.featureTable(&entries[i]); err != nil {
			return err
		}
	}
	return e.warnSilent()
}

func (e *env) featureTable(s *status.Entry) error {
	if s.Err != "" {
		fmt.Fprintf(e.out, "%s: %s\n", s.File, s.Err)
		return nil
	}
	state := "running"
	if e.halted(s) != "" {
		state = "NOT WORKING since " + s.Written.UTC().Format(time.RFC3339) + " or later; last known:"
	}
	if !s.Alive {
		state = "NOT RUNNING since " + s.Written.UTC().Format(time.RFC3339) + " or later; last known:"
	}
	fmt.Fprintf(e.out, "%s (pid %d, %s)%s\n", cell(s.ProgramVersion), s.PID, state, runtimeOf(s))
	rows := make([][]string, 0, len(s.Features))
	for _, f := range s.Features {
		rows = append(rows, []string{f.Feature, f.State, f.Detail})
	}
	if err := printSentences(e.out, []string{"FEATURE", "STATE", "HOW"}, rows); err != nil {
		return err
	}
	return e.overrideTable(s)
}

// runtimeOf is the runtime that a daemon has met, and its NRI where it speaks it.
func runtimeOf(s *status.Entry) string {
	if s.RuntimeName == "" {
		return ""
	}
	text := " with " + cell(s.RuntimeName) + " " + cell(s.RuntimeVersion)
	if s.NRIVersion != "" {
		text += ", NRI " + cell(s.NRIVersion)
	}
	return text
}
