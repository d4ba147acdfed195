// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"fmt"
	"os"

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
	if s != nil && s.ConfigPath != "" {
		if data, err := os.ReadFile(e.path(s.ConfigPath)); err == nil {
			if c, _, err := config.LoadNRI(data); err == nil {
				return c
			}
		}
	}
	c := config.Default()
	c.Socket = defaultNRISocket
	return c
}

func (e *env) doctor(containerd, socket string) error {
	plugin := e.pluginStatus()
	cfg := e.pluginConfig(plugin)
	if socket == "" {
		socket = cfg.Socket
	}
	checks := []check{e.checkNRIConfig(containerd, plugin), e.checkNRISocket(socket)}
	checks = append(checks, checkPlugin(plugin, e.path(e.runDir))...)
	checks = append(checks, checkRuntime(plugin), e.checkLock(plugin), e.checkRunDir(), e.checkLedger(), e.checkHandoff())
	checks = append(checks, e.checkAgents(), e.checkOtherPlugins(), e.checkCgroups(cfg.Host.KubepodsRoot), e.checkResctrl())
	checks = append(checks, e.checkKubelet()...)
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

// pluginStatus is the NRI plugin's entry, nil when there is none.
func (e *env) pluginStatus() *status.Entry {
	entries, err := status.ReadAll(e.path(e.runDir), e.path("/proc"))
	if err != nil {
		return &status.Entry{Err: err.Error()}
	}
	for i := range entries {
		if entries[i].Writer == "nri" || entries[i].Err != "" {
			return &entries[i]
		}
	}
	return nil
}
