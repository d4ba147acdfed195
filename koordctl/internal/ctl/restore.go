// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/koord-rt/koord-rt/daemon/ledger"
	"github.com/koord-rt/koord-rt/daemon/lock"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/model/journal"
)

// restoreWriter names our own ledger.
const restoreWriter = "koordctl"

func restoreCommand(e *env) *cobra.Command {
	var dryRun bool
	var pod, container, endpoint string
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "Write back what stood in the kernel before koord-rt, where it still holds our value",
		Long: "Node, QoS class and pod level, resctrl and processes return to what was read before our first write, or to what the kubelet\n" +
			"has written since. Container values that the runtime keeps in its own specification get the kubelet's value or the widest one, there\n" +
			"and in the kernel. Properties of systemd units follow, so that a daemon-reload does not bring ours back. Values of a specification\n" +
			"alone (variables, devices) are listed: only a new container is without them. Stop koord-nri first, or it sets them again.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return e.restore(cmd.Context(), dryRun, pod, container, endpoint)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&dryRun, "dry-run", false, "only print the steps")
	f.StringVar(&pod, "pod", "", "only this pod and its containers: namespace/pod or UID")
	f.StringVar(&container, "container", "", "only this container: namespace/pod/container or id")
	f.StringVar(&endpoint, "runtime-endpoint", "", "the runtime's CRI socket, unix:///path (default: where our daemons reach it)")
	cmd.MarkFlagsMutuallyExclusive("pod", "container")
	return cmd
}

func (e *env) restore(ctx context.Context, dryRun bool, pod, container, endpoint string) (err error) {
	var j journal.Journal
	runDir := e.path(e.runDir)
	// "0 restored" would be good news of a run directory where nobody has been; and whatever else it is, the lock would close it to others.
	switch info, err := os.Stat(ledger.Dir(runDir)); {
	case errors.Is(err, fs.ErrNotExist), err == nil && !info.IsDir():
		return fmt.Errorf("nothing to restore: no ledger in %s: nothing of koord-rt has run since the node's start, or give its runDir with --run-dir", runDir)
	case err != nil:
		return fmt.Errorf("look for ledgers: %w", err)
	}
	if !dryRun {
		held, err := lock.Acquire(filepath.Join(runDir, restoreWriter+".lock"))
		if err != nil {
			return err
		}
		defer func() { _ = held.Release() }()
		l, err := ledger.Open(runDir, restoreWriter, ledger.Options{})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, l.Close()) }()
		j = l
	}
	m, err := e.open(j)
	if err != nil {
		return err
	}
	records := m.records
	if arg := pod + container; arg != "" {
		keep, err := choose(records, arg)
		if err != nil {
			return err
		}
		records = records[:0:0]
		for i := range m.records {
			if keep(&m.records[i].Target) {
				records = append(records, m.records[i])
			}
		}
	}
	e.warnRunning(runDir)
	steps := m.applier.Restore(ctx, records, dryRun)
	steps = append(steps, e.tellRuntime(ctx, m, steps, endpoint, dryRun)...)
	if container == "" { // resctrl groups are a class's or a pod's
		steps = append(steps, m.removeGroups(records, dryRun)...)
	}
	return e.printSteps(steps, dryRun)
}

func (e *env) warnRunning(runDir string) {
	entries, err := status.ReadAll(runDir, e.path("/proc"))
	if err != nil {
		return
	}
	for _, s := range entries {
		if s.Alive {
			fmt.Fprintf(e.err, "warning: %s (pid %d) is running and will set these values again; stop it first\n", cell(s.Program), s.PID)
		}
	}
}

// step is a RestoreStep for people and programs.
type step struct {
	Target string   `json:"target"`
	Knob   string   `json:"knob"`
	Key    string   `json:"key,omitempty"`
	Action string   `json:"action"`
	Files  []string `json:"files,omitempty"`
	From   string   `json:"from,omitempty"`
	To     []string `json:"to,omitempty"`
	Reason string   `json:"reason,omitempty"`
	Err    string   `json:"error,omitempty"`
}

func (e *env) printSteps(steps []apply.RestoreStep, dryRun bool) error {
	out := make([]step, 0, len(steps))
	var written, recreate, failed int
	for _, s := range steps {
		o := step{
			Target: s.Target.String(), Knob: s.Knob.String(), Key: s.Key, Action: string(s.Action), Files: s.Files, From: s.From, To: s.To,
			Reason: s.Reason,
		}
		switch {
		case errors.Is(s.Err, apply.ErrGone):
			o.Reason = "gone"
		case s.Err != nil:
			o.Err = s.Err.Error()
			failed++
		case s.Action == apply.ActWrite || s.Action == actTell:
			written++
		case s.Action == apply.ActRecreate:
			recreate++
		}
		out = append(out, o)
	}
	if err := e.printStepList(out); err != nil {
		return err
	}
	if e.output == outTable {
		verb := "restored"
		if dryRun {
			verb = "to restore"
		}
		fmt.Fprintf(e.out, "%d %s, %d need a new container, %d failed, %d left alone\n", written, verb, recreate, failed, len(out)-written-recreate-failed)
	}
	if failed > 0 {
		return ErrFound
	}
	return nil
}

func (e *env) printStepList(out []step) error {
	if e.output == outJSON {
		return printJSON(e.out, out)
	}
	if len(out) == 0 {
		return nil
	}
	rows := make([][]string, 0, len(out))
	for _, s := range out {
		knob, reason := s.Knob, s.Reason
		if s.Key != "" {
			knob += "[" + s.Key + "]"
		}
		if s.Err != "" {
			reason += " [" + s.Err + "]"
		}
		rows = append(rows, []string{s.Action, s.Target, knob, s.From, strings.Join(s.To, ", "), reason})
	}
	return printTable(e.out, []string{"ACTION", "TARGET", "KNOB", "FROM", "TO", "REASON"}, rows)
}
