// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/model/unit"
)

// topOptions are the arguments and flags of top.
type topOptions struct {
	// view is one of topViews, empty for node and classes.
	view string
	// rows of pods, 0 for all; sort is one of topSorts.
	rows  int
	sort  string
	class string
	// watch again every interval.
	watch    bool
	interval time.Duration
	cluster  clusterOptions
}

// Views of top.
const (
	viewBoth = ""
	viewNode = "node"
	viewQoS  = "qos"
	viewPods = "pods"
)

// Orders of pods.
const (
	sortCPU    = "cpu"
	sortMemory = "memory"
	sortName   = "name"
)

// minInterval of --watch: the file is not written more often.
const minInterval = 500 * time.Millisecond

func topCommand(e *env) *cobra.Command {
	var o topOptions
	cmd := &cobra.Command{
		Use:   "top [node|qos|pods]",
		Short: "What the node, its QoS classes and its pods use now, and what holds best-effort pods down; --cluster: all nodes",
		Long: "Shows what koordlet has measured last. Without an argument: the node and its QoS classes. node adds the loops with their last\n" +
			"decisions, what the agent goes without, and evictions; pods lists pods, the one with most CPU first.\n\n" +
			"With --cluster: each node's lines of the resource model (limit, usage, short-term and long-term reservation of production pods) and\n" +
			"what is lent to batch and mid pods, as koord-manager tells it. kubectl proxy must be running, or --metrics say where to ask.",
		Args: cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs), ValidArgs: []string{viewNode, viewQoS, viewPods},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				o.view = args[0]
			}
			if e.output == outJSON && !cmd.Flags().Changed("rows") {
				o.rows = 0 // a program has room for all, and does not expect a part
			}
			return e.top(cmd.Context(), &o)
		},
	}
	f := cmd.Flags()
	f.IntVarP(&o.rows, "rows", "n", 20, "pods or nodes to list, 0 for all; -o json lists all unless it is given")
	f.StringVar(&o.sort, "sort", sortCPU, "order of pods or nodes: cpu, memory or name")
	f.StringVar(&o.class, "class", "", "only pods of this QoS class: LSE, LSR, LS, BE, SYSTEM, none")
	f.BoolVarP(&o.watch, "watch", "w", false, "show it again and again until interrupted")
	o.cluster.flags(f)
	f.DurationVar(&o.interval, "interval", 2*time.Second, "pause of --watch")
	return cmd
}

func (o *topOptions) check() error {
	switch {
	case o.sort != sortCPU && o.sort != sortMemory && o.sort != sortName:
		return fmt.Errorf("--sort %q is neither cpu, memory nor name", o.sort)
	case o.rows < 0:
		return fmt.Errorf("--rows %d is negative", o.rows)
	case o.interval < minInterval:
		return fmt.Errorf("--interval %s is shorter than %s", o.interval, minInterval)
	}
	return o.checkCluster()
}

// wants reports whether a pod is among those to list.
func (o *topOptions) wants(p *status.Pod) bool {
	return o.class == "" || strings.EqualFold(p.Class, o.class)
}

func (e *env) top(ctx context.Context, o *topOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	draw := func() (string, error) {
		if o.cluster.wanted {
			return e.clusterText(ctx, o)
		}
		s, err := e.agentStatus()
		if err != nil {
			return "", err
		}
		return e.topText(s, o)
	}
	if o.watch {
		return e.watch(ctx, o.interval, draw)
	}
	text, err := draw()
	if err != nil {
		return err
	}
	if _, err := fmt.Fprint(e.out, text); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

var errNoAgent = errors.New("no figures of this node")

// agentStatus is the status of the node agent: of one that runs, else the newest.
func (e *env) agentStatus() (*status.Entry, error) {
	runDir := e.path(e.runDir)
	entries, err := status.ReadAll(runDir, e.path("/proc"))
	if err != nil {
		return nil, err
	}
	var best *status.Entry
	var unread string
	for i := range entries {
		s := &entries[i]
		switch {
		case s.Err != "" && s.Writer == writerKoordlet:
			unread = s.Err
		case s.Agent == nil:
		case best == nil, s.Alive && !best.Alive, s.Alive == best.Alive && s.Written.After(best.Written):
			best = s
		}
	}
	switch {
	case best != nil:
		return best, nil
	case unread != "":
		return nil, fmt.Errorf("%w: %s (run koordctl as root, of the same release as koordlet)", errNoAgent, unread)
	}
	return nil, fmt.Errorf("%w: koordlet has written no status in %s: start it, or give its runDir with --run-dir", errNoAgent, runDir)
}

// topJSON is what -o json prints: the parts that the view has.
type topJSON struct {
	Program string    `json:"program"`
	Written time.Time `json:"written"`
	// Alive: the agent still runs; otherwise the figures are its last.
	Alive bool `json:"alive"`
	*status.Agent
	Pods []status.Pod `json:"pods,omitempty"`
	// PodsNotListed are those that --rows cut off; PodsLeftOut of the agent are in its file neither.
	PodsNotListed int `json:"podsNotListed,omitempty"`
}

func (e *env) topText(s *status.Entry, o *topOptions) (string, error) {
	pods, cut := choosePods(s.Agent.Pods, o)
	if e.output == outJSON {
		return topAsJSON(s, o, pods, cut)
	}
	v := &topView{s: s, a: s.Agent, now: e.clock()}
	v.header()
	switch o.view {
	case viewNode:
		v.node()
		v.machinery()
	case viewQoS:
		v.classes()
	case viewPods:
		v.pods(pods, cut)
	default:
		v.node()
		v.classes()
		v.warnings()
	}
	return v.String(), v.err
}

func topAsJSON(s *status.Entry, o *topOptions, pods []status.Pod, cut int) (string, error) {
	a := *s.Agent
	switch o.view {
	case viewNode:
		a.Classes, pods, cut = nil, nil, 0
	case viewQoS:
		a = status.Agent{Node: a.Node, Classes: a.Classes}
		pods, cut = nil, 0
	case viewPods:
		a = status.Agent{Node: a.Node, PodsLeftOut: a.PodsLeftOut}
	default:
		pods, cut = nil, 0
	}
	return o.asJSON(topJSON{s.ProgramVersion, s.Written, s.Alive, &a, pods, cut})
}

// asJSON is one picture for a program: of --watch a line for each time.
func (o *topOptions) asJSON(v any) (string, error) {
	var b strings.Builder
	if o.watch {
		line, err := json.Marshal(v)
		b.Write(line)
		b.WriteByte('\n')
		return b.String(), err
	}
	err := printJSON(&b, v)
	return b.String(), err
}

// choosePods are the pods to list, in their order, and how many more there are to list.
func choosePods(all []status.Pod, o *topOptions) (out []status.Pod, cut int) {
	for i := range all {
		if o.wants(&all[i]) {
			out = append(out, all[i])
		}
	}
	slices.SortStableFunc(out, func(a, b status.Pod) int {
		byName := cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
		switch o.sort {
		case sortCPU:
			return cmp.Or(cmp.Compare(known(b.Used.CPU), known(a.Used.CPU)), byName)
		case sortMemory:
			return cmp.Or(cmp.Compare(known(b.Used.Memory), known(a.Used.Memory)), byName)
		}
		return byName
	})
	return firstOf(out, o)
}

// firstOf are as many as there shall be rows, and how many more there are.
func firstOf[T any](list []T, o *topOptions) (first []T, cut int) {
	n := len(list)
	if o.rows > 0 {
		n = min(n, o.rows)
	}
	return list[:n], len(list) - n
}

// known is a figure, -1 when there is none.
func known[T unit.MilliCPU | unit.Bytes](v *T) T {
	if v == nil {
		return -1
	}
	return *v
}

// clock is the present time.
func (e *env) clock() time.Time {
	if e.now != nil {
		return e.now()
	}
	return time.Now()
}
