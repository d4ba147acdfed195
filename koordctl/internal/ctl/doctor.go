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
	plugin, proxy := e.statusOf("nri"), e.statusOf("cri")
	cfg := e.pluginConfig(plugin)
	if socket == "" {
		socket = cfg.Socket
	}
	var checks []check
	main, node := plugin, cfg.Node
	if plugin != nil || proxy == nil { // a node with the proxy alone needs no NRI
		checks = append(e.checkContainerd(containerd, plugin, cfg.CDI), e.checkNRISocket(socket))
		checks = append(checks, checkPlugin(plugin, e.path(e.runDir))...)
		checks = append(checks, checkRuntime(plugin), e.checkLock(plugin))
	} else {
		main, node = proxy, e.proxyConfig(proxy).Node
	}
	if proxy != nil {
		checks = append(checks, e.checkProxy(proxy)...)
	}
	checks = append(checks, e.checkRunDir(), e.checkLedger(), e.checkHandoff())
	checks = append(checks, e.checkAgents(), e.checkOtherPlugins(), e.checkCgroups(node.Host.KubepodsRoot), e.checkResctrl())
	checks = append(checks, e.checkKubelet()...)
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

// checkContainerd judges containerd's configuration.
func (e *env) checkContainerd(path string, plugin *status.Entry, cdi string) []check {
	files, err := e.containerdConfig(path)
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

// statusOf is the entry of one of our programs, "nri" or "cri", nil when there is none. One that cannot be read counts as
// the plugin's.
func (e *env) statusOf(writer string) *status.Entry {
	entries, err := status.ReadAll(e.path(e.runDir), e.path("/proc"))
	if err != nil {
		if writer != "nri" {
			return nil
		}
		return &status.Entry{Err: err.Error()}
	}
	for i := range entries {
		if entries[i].Writer == writer || entries[i].Err != "" && writer == "nri" {
			return &entries[i]
		}
	}
	return nil
}
