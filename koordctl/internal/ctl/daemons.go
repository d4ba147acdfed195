// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"fmt"
	"os"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/daemon/status"
)

// daemon is one of our programs on a node.
type daemon struct {
	// writer is its name in the run directory, program the binary's and its unit's, check that of its line in doctor.
	writer, program, check string
	// file is its configuration in /etc/koord-rt, node the part of it that all of them have.
	file string
	node func(data []byte) (config.Node, error)
	// ended completes what to do when it does not run; idle says what is wrong while it is not connected, and connect what
	// to do then.
	ended, idle, connect string
	// missed is what the node lacks while it lives and does not work.
	missed string
	// guards: containers are created through it, so it counts those that came up without their guarantees.
	guards bool
	// more are the checks of its own, after the one of its process; nil for none.
	more func(e *env, s *status.Entry) []check
}

// The writers.
const (
	writerNRI      = "nri"
	writerProxy    = "cri"
	writerKoordlet = "koordlet"
)

// daemons are our programs, the one first whose word counts most about the node: the others' configuration is looked at
// where it is not there.
func daemons() []daemon {
	return []daemon{
		{
			writer: writerNRI, program: "koord-nri", check: "plugin", file: "nri.yaml", node: nodeOf(config.LoadNRI, nriNode), guards: true,
			idle: "runs but is not connected to the runtime", connect: "see nri-config and nri-socket; the plugin connects by itself once NRI is on",
			missed: "the runtime drops it, new containers come up without their values, and drift stays",
		},
		{
			writer: writerProxy, program: "koord-runtime-proxy", check: "proxy", file: "proxy.yaml", node: nodeOf(config.LoadProxy, proxyNode), guards: true,
			ended: ", or the kubelet behind it reaches no runtime", idle: "runs, but the runtime behind it does not answer",
			connect: "start the runtime; runtimeEndpoint in proxy.yaml says where it is looked for", more: (*env).checkProxy,
			missed: "the kubelet behind it reaches no runtime",
		},
		{
			writer: writerKoordlet, program: "koordlet", check: "koordlet", file: "koordlet.yaml", node: nodeOf(config.LoadKoordlet, koordletNode),
			idle: "runs, but the runtime does not answer it", connect: "start the runtime; runtimeEndpoint in koordlet.yaml says where it is looked for", more: (*env).checkOwnNode,
			missed: "nothing follows the load, and the API server hears nothing of this node",
		},
	}
}

func nriNode(c *config.NRI) config.Node           { return c.Node }
func proxyNode(c *config.Proxy) config.Node       { return c.Node }
func koordletNode(c *config.Koordlet) config.Node { return c.Node }

// nodeOf reads the common part of a configuration.
func nodeOf[C, S any](load func([]byte) (C, S, error), node func(*C) config.Node) func([]byte) (config.Node, error) {
	return func(data []byte) (config.Node, error) {
		c, _, err := load(data)
		return node(&c), err
	}
}

// installed is a daemon with its status file, which is nil where it has none.
type installed struct {
	daemon
	status *status.Entry
}

// installed lists the daemons, in the table's order. A run directory that cannot be read counts as the first one's status.
func (e *env) installed() []installed {
	table := daemons()
	out := make([]installed, len(table))
	entries, err := status.ReadAll(e.path(e.runDir), e.path("/proc"))
	for i, d := range table {
		out[i].daemon = d
		if err != nil && i == 0 {
			out[i].status = &status.Entry{Err: err.Error()}
		}
		for j := range entries {
			if entries[j].Writer == d.writer {
				out[i].status = &entries[j]
			}
		}
	}
	return out
}

// nodeConfig is the common part of the configuration that the running daemon names, else the default.
func (e *env) nodeConfig(d *installed) config.Node {
	if data, ok := e.configOf(d.status); ok {
		if n, err := d.node(data); err == nil {
			return n
		}
	}
	return config.Default().Node
}

// configOf is the configuration file that a daemon names; false where it names none or it cannot be read. Flags of its
// command line are not in it.
func (e *env) configOf(s *status.Entry) (data []byte, ok bool) {
	if s == nil || s.ConfigPath == "" {
		return nil, false
	}
	data, err := os.ReadFile(e.path(s.ConfigPath))
	return data, err == nil
}

// checkDaemon judges a daemon by its own description: its process, its connection, and what it reports.
func (e *env) checkDaemon(d *installed) []check {
	s, start := d.status, fmt.Sprintf("systemctl start %s%s; journalctl -u %s says why it ended", d.program, d.ended, d.program)
	c := check{Name: d.check, Result: fail}
	what, next := "", ""
	if s != nil && s.Err == "" {
		what, next = e.silent(&d.daemon, s)
	}
	switch {
	case s == nil:
		c.Detail, c.Next = "no status file in "+e.path(e.runDir)+": "+d.program+" has not run", start
		return []check{c}
	case s.Err != "":
		c.Detail, c.Next = s.Err, "run koordctl as root, of the same release as "+d.program
		return []check{c}
	case !s.Alive:
		c.Detail, c.Next = fmt.Sprintf("%s (pid %d) is not running", s.ProgramVersion, s.PID), start
		return []check{c}
	case what != "":
		c.Detail, c.Next = fmt.Sprintf("%s (pid %d) %s", s.ProgramVersion, s.PID, what), next
		return []check{c} // the rest of what it says of itself is old
	case s.ConnectedSince.IsZero():
		c.Detail, c.Next = fmt.Sprintf("%s (pid %d) %s", s.ProgramVersion, s.PID, d.idle), d.connect
	default:
		c.Result = ok
		c.Detail = fmt.Sprintf("%s (pid %d), connected since %s", s.ProgramVersion, s.PID, s.ConnectedSince.UTC().Format("2006-01-02T15:04:05Z"))
	}
	out := []check{c}
	if d.more != nil {
		out = append(out, d.more(e, s)...)
	}
	if d.guards {
		out = append(out, checkCounters(s))
	}
	if s.ConfigPending != "" {
		out = append(out, check{
			Name: "configuration", Result: warn, Detail: s.ConfigPath + ": " + s.ConfigPending,
			Next: fmt.Sprintf("%s --config %s --check-config, then systemctl restart %s", d.program, s.ConfigPath, d.program),
		})
	}
	return append(out, checkProblems(s)...)
}

func checkCounters(s *status.Entry) check {
	c := check{Name: "guarantees", Result: ok, Detail: fmt.Sprintf("%d containers, none without guarantees", s.Counters["containers"])}
	switch {
	case len(s.ProofFailures) > 0:
		c.Result, c.Detail = warn, fmt.Sprintf("%d containers did not have every value at start", len(s.ProofFailures))
		c.Next = "koordctl diff lists what differs now"
	case s.Counters["unmanaged"] > 0 || s.Counters["failOpen"] > 0:
		c.Result, c.Detail = warn, fmt.Sprintf("%d containers came up without us, %d decisions failed open", s.Counters["unmanaged"], s.Counters["failOpen"])
		c.Next = "what has no NRI field was repaired afterwards; recreate pods that need the rest"
	}
	return c
}

func checkProblems(s *status.Entry) []check {
	n := len(s.Problems)
	if n == 0 {
		return nil
	}
	p := s.Problems[n-1]
	detail := fmt.Sprintf("%d, the last: %s %s: %s", n, p.Where, p.Key, p.Reason)
	return []check{{Name: "problems", Result: warn, Detail: detail, Next: "koordctl features -o json lists them"}}
}

// ours reports whether a process is one of our daemons that live: koordlet has the name of upstream's.
func ours(found []installed, pid int) bool {
	for i := range found {
		if s := found[i].status; s != nil && s.Alive && s.PID == pid {
			return true
		}
	}
	return false
}
