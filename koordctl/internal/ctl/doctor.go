// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/daemon/status"
)

// verdict of a check.
type verdict string

// The verdicts.
const (
	ok   verdict = "ok"
	warn verdict = "warn"
	fail verdict = "FAIL"
)

// check is one line of doctor.
type check struct {
	Name   string  `json:"check"`
	Result verdict `json:"result"`
	Detail string  `json:"detail"`
	// Next is what to do; empty when all is well.
	Next string `json:"next,omitempty"`
}

func doctorCommand(e *env) *cobra.Command {
	var containerd, socket string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check what koord-rt needs on this node, and what to do where it is missing",
		Long:  "Exits with 1 when a check fails; warnings do not count.",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return e.doctor(containerd, socket) },
	}
	cmd.Flags().StringVar(&containerd, "containerd-config", "/etc/containerd/config.toml", "containerd's configuration")
	cmd.Flags().StringVar(&socket, "nri-socket", "", "the runtime's NRI socket (default koord-nri's, else "+defaultNRISocket+")")
	return cmd
}

const defaultNRISocket = "/run/nri/nri.sock"

// pluginConfig is the configuration that the running koord-nri names, else the default.
func (e *env) pluginConfig(s *status.Entry) config.NRI {
	if data, ok := e.configOf(s); ok {
		if c, _, err := config.LoadNRI(data); err == nil {
			return c
		}
	}
	c := config.Default()
	c.Socket = defaultNRISocket
	return c
}

func (e *env) doctor(containerd, socket string) error {
	found := e.installed()
	checks := e.checkDaemons(found, containerd, socket)
	main := mainOf(found)
	node := e.nodeConfig(main)
	checks = append(checks, e.checkRunDir(), e.checkLedger(), e.checkHandoff(found))
	checks = append(checks, e.checkAgents(found), e.checkOtherPlugins(containerd, entryOf(found, writerNRI)), e.checkCgroups(node.Host.KubepodsRoot), e.checkResctrl())
	checks = append(checks, e.checkKubelet(node)...)
	checks = append(checks, e.checkMemoryQoS(main, node.Host.KubeletMemoryQoS))
	if err := e.printChecks(checks); err != nil {
		return err
	}
	for _, c := range checks {
		if c.Result == fail {
			return ErrFound
		}
	}
	return nil
}

// checkDaemons judges the daemons that are there, and koord-nri with what it needs, which a node must have unless the
// proxy stands in for it.
func (e *env) checkDaemons(found []installed, containerd, socket string) []check {
	var checks []check
	proxied := slices.ContainsFunc(found, func(d installed) bool { return d.writer == writerProxy && d.status != nil })
	for i := range found {
		d := &found[i]
		switch {
		case d.writer == writerNRI && (d.status != nil || !proxied):
			checks = append(checks, e.checkNRI(d, containerd, socket)...)
		case d.status != nil:
			checks = append(checks, e.checkDaemon(d)...)
		}
	}
	return checks
}

// entryOf is what a daemon has written of itself, nil where it has not run.
func entryOf(found []installed, writer string) *status.Entry {
	for i := range found {
		if found[i].writer == writer {
			return found[i].status
		}
	}
	return nil
}

// mainOf is the daemon whose configuration holds for the node: the first that is there.
func mainOf(found []installed) *installed {
	for i := range found {
		if found[i].status != nil {
			return &found[i]
		}
	}
	return &found[0]
}

// checkContainerd judges containerd's configuration.
func (e *env) checkContainerd(path string, plugin *status.Entry, cdi string) []check {
	files, err := e.containerdConfig(path, plugin)
	if err != nil {
		return []check{{Name: "nri-config", Result: warn, Detail: err.Error(), Next: "run koordctl as root"}}
	}
	return []check{checkNRIConfig(files, plugin), checkCDI(files, plugin, cdi)}
}

func (e *env) printChecks(checks []check) error {
	if e.output == outJSON {
		return printJSON(e.out, checks)
	}
	rows := make([][]string, 0, len(checks))
	for _, c := range checks {
		rows = append(rows, []string{string(c.Result), c.Name, c.Detail})
	}
	if err := printTable(e.out, []string{"RESULT", "CHECK", "FOUND"}, rows); err != nil {
		return err
	}
	first := true
	for _, c := range checks {
		if c.Next == "" {
			continue
		}
		if first {
			fmt.Fprintln(e.out, "\nWhat to do:")
			first = false
		}
		fmt.Fprintf(e.out, "  %s: %s\n", c.Name, c.Next)
	}
	return nil
}
