// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/koordctl/internal/manager"
)

// clusterOptions are the flags of top --cluster.
type clusterOptions struct {
	wanted bool
	manager.Source
}

func (c *clusterOptions) flags(f *pflag.FlagSet) {
	f.BoolVar(&c.wanted, "cluster", false, "the lines of the resource model of every node of the cluster, as koord-manager tells them")
	f.StringVar(&c.Via, "via", "http://127.0.0.1:8001", "API server as kubectl proxy offers it, or unix:/path, for --cluster")
	f.StringVar(&c.Namespace, "manager-namespace", "koordinator-system", "namespace of koord-manager, for --cluster")
	f.IntVar(&c.Port, "manager-port", 8080, "port of koord-manager's metrics, for --cluster")
	f.StringVar(&c.Metrics, "metrics", "", "metrics of the koord-manager that leads, instead of --via: a URL, unix:/path, or - for standard input")
}

func (o *topOptions) checkCluster() error {
	c := &o.cluster
	switch {
	case !c.wanted:
		return nil
	case o.view != viewBoth:
		return errors.New("--cluster has no views: leave " + strconv.Quote(o.view) + " out")
	case o.class != "":
		return errors.New("--cluster lists nodes: --class is of pods")
	case c.Metrics == "-" && o.watch:
		return errors.New("--metrics - can be read once: leave --watch out")
	case c.Port < 1 || c.Port > 65535:
		return fmt.Errorf("--manager-port %d: want 1..65535", c.Port)
	}
	return nil
}

// clusterText asks the manager and draws what it says.
func (e *env) clusterText(ctx context.Context, o *topOptions) (string, error) {
	source := o.cluster.Source
	source.In = os.Stdin
	if e.in != nil {
		source.In = e.in
	}
	p, err := manager.Read(ctx, source)
	if err != nil {
		return "", fmt.Errorf("no figures of the cluster: %w", err)
	}
	if e.output == outJSON {
		return clusterJSON(p, o)
	}
	return drawCluster(p, o)
}

// clusterPicture is what -o json prints: the nodes to list in their order, and what the table has of all.
type clusterPicture struct {
	manager.Picture
	Total manager.Node `json:"total"`
	// NodesNotListed are those that --rows cut off.
	NodesNotListed int `json:"nodesNotListed,omitempty"`
}

func clusterJSON(p *manager.Picture, o *topOptions) (string, error) {
	out := clusterPicture{Picture: manager.Picture{From: p.From}, Total: p.Total()}
	out.Nodes, out.NodesNotListed = chooseNodes(p.Nodes, o)
	out.Total.Name = "ALL"
	return o.asJSON(out)
}

// drawCluster is the table: the whole cluster, then its nodes.
func drawCluster(p *manager.Picture, o *topOptions) (string, error) {
	var b strings.Builder
	total := p.Total()
	total.Name = "ALL " + strconv.Itoa(len(p.Nodes))
	rows := [][]string{clusterRow(&total)}
	nodes, cut := chooseNodes(p.Nodes, o)
	for i := range nodes {
		rows = append(rows, clusterRow(&nodes[i]))
	}
	head := []string{
		"NODE", "CPU LIMIT", "USAGE", "SHORT-TERM", "LONG-TERM", "BATCH", "MID",
		"MEMORY LIMIT", "USAGE", "SHORT-TERM", "LONG-TERM", "BATCH", "MID", "PROBLEMS",
	}
	if err := printTable(&b, head, rows); err != nil {
		return "", err
	}
	if cut > 0 {
		fmt.Fprintf(&b, "%d of %d nodes; -n 0 lists all\n", len(nodes), len(p.Nodes))
	}
	idle, unread := 0, 0
	for i := range p.Nodes {
		switch n := &p.Nodes[i]; {
		case n.Limit.CPU == nil:
			unread++
		case n.Batch.CPU == nil:
			idle++
		}
	}
	if idle > 0 {
		fmt.Fprintf(&b, "%d lend nothing: colocation is off for them, or, without USAGE, no report of theirs counts\n", idle)
	}
	if unread > 0 {
		fmt.Fprintf(&b, "%d without lines: koord-manager has never been able to read colocation-config\n", unread)
	}
	if total.Problems > 0 {
		b.WriteString("PROBLEMS: koord-manager's log says which\n")
	}
	return b.String(), nil
}

func clusterRow(n *manager.Node) []string {
	all := []*status.Usage{&n.Limit, &n.Usage, &n.ShortTerm, &n.LongTerm, &n.Batch, &n.Mid}
	row := []string{n.Name}
	for _, u := range all {
		row = append(row, cpuText(u.CPU))
	}
	for _, u := range all {
		row = append(row, memoryText(u.Memory))
	}
	return append(row, strconv.Itoa(n.Problems))
}

// chooseNodes are the nodes to list, in their order: those that use most first; and how many more there are.
func chooseNodes(all []manager.Node, o *topOptions) (list []manager.Node, cut int) {
	out := slices.Clone(all)
	slices.SortStableFunc(out, func(a, b manager.Node) int {
		switch o.sort {
		case sortCPU:
			return cmp.Compare(known(b.Usage.CPU), known(a.Usage.CPU))
		case sortMemory:
			return cmp.Compare(known(b.Usage.Memory), known(a.Usage.Memory))
		}
		return 0 // by name already
	})
	return firstOf(out, o)
}
