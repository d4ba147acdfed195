// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package setup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/slo"
	"github.com/koord-rt/koord-rt/api/strategy"
	"github.com/koord-rt/koord-rt/daemon/run"
	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/koordlet/internal/decide"
	"github.com/koord-rt/koord-rt/koordlet/internal/kube"
	"github.com/koord-rt/koord-rt/koordlet/internal/pods"
	"github.com/koord-rt/koord-rt/koordlet/internal/trust"
	"github.com/koord-rt/koord-rt/model/topo"
)

// cluster is the API server as the agent uses it; without one, nothing of it is known and nothing fails.
type cluster struct {
	name   string
	agent  string // what requests call themselves: PROGRAM/VERSION, for audit logs
	client *kube.Client
	node   *kube.Single[kube.Node]
	slo    *kube.Single[slo.Strategy]
	metric *kube.Single[slo.Asked]
	// cpus are those online, none where they are not known; set before anything runs.
	cpus func() topo.CPUSet
	// poke is called when the NodeMetric is another one or its policy has changed; set before anything runs.
	poke func()
	// back is called when the API server answers again who follows the NodeSLO, and when that has changed; set before anything runs.
	back func()
	// answered hears of the kubelet's answers; set before anything runs.
	answered func(method, path string, code int, took time.Duration)
	// wrote hears of each write to the API server; set before anything runs.
	wrote func(object string, failed bool)
}

func newCluster(cfg *config.Koordlet, version string, log *slog.Logger) (*cluster, error) {
	name, err := nodeName(cfg.NodeName, os.Getenv, os.Hostname)
	if err != nil {
		return nil, err
	}
	c := &cluster{name: name, agent: Program + "/" + version, cpus: func() topo.CPUSet { return topo.CPUSet{} }, poke: func() {}, back: func() {}, answered: func(string, string, int, time.Duration) {}, wrote: func(string, bool) {}}
	if cfg.APIServer.Mode == config.APIServerOff {
		return c, nil
	}
	conf, err := way(&cfg.APIServer)
	if errors.Is(err, kube.ErrNoCluster) {
		log.Info("no API server: strategy and limits come from files and the runtime", "reason", err)
		return c, nil
	}
	if err != nil {
		return nil, fmt.Errorf("way to the API server: %w", err)
	}
	conf.Trust.UserAgent = c.agent
	conf.Read = func(err error) { toldWay(log, conf.Kubeconfig, err) }
	conf.Wrote = func(object string, failed bool) { c.wrote(object, failed) }
	if c.client, err = kube.New(conf); err != nil {
		return nil, fmt.Errorf("way to the API server: %w", err)
	}
	unread := ""
	c.node = kube.NewSingle(c.client, kube.Nodes, name, kube.DecodeNode, kube.FollowOptions{}, func(o kube.Observation[kube.Node]) {
		told(log, "node", o.Err)
		unread = toldUnread(log, unread, decide.Unread(&o.Value, c.cpus()))
	})
	twice := ""
	c.slo = kube.NewSingle(c.client, kube.NodeSLOs, name, slo.DecodeNodeSLO, kube.FollowOptions{}, func(o kube.Observation[slo.Strategy]) {
		told(log, "NodeSLO", o.Err)
		twice = toldUnread(log, twice, setTwice(o.Value.Conflicts))
		if o.Err == nil || errors.Is(o.Err, kube.ErrMalformed) { // the server has answered
			c.back()
		}
	})
	c.metric = kube.NewSingle(c.client, kube.NodeMetrics, name, slo.DecodeNodeMetric, kube.FollowOptions{}, func(o kube.Observation[slo.Asked]) {
		told(log, "NodeMetric", o.Err)
		c.poke()
	})
	return c, nil
}

func told(log *slog.Logger, what string, err error) {
	if err != nil {
		log.Warn("cannot follow, what is known holds", "what", what, "err", err)
		return
	}
	log.Info("followed", "what", what)
}

// toldUnread logs what of an object cannot be read, where that is news after last.
func toldUnread(log *slog.Logger, last string, err error) string {
	if err == nil {
		return ""
	}
	if err.Error() != last {
		log.Warn("cannot read all of an object", "err", err)
	}
	return err.Error()
}

// setTwice names the fields that a NodeSLO has in both spellings with different values, which the API server's rules refuse where they stand.
func setTwice(conflicts []strategy.Conflict) error {
	if len(conflicts) == 0 {
		return nil
	}
	errs := make([]error, len(conflicts))
	for i, c := range conflicts {
		errs[i] = c
	}
	return fmt.Errorf("NodeSLO: of two spellings the first counts: %w", errors.Join(errs...))
}

func toldWay(log *slog.Logger, path string, err error) {
	if err != nil {
		log.Warn("cannot read the way to the API server, it is tried again every few seconds", "path", path, "err", err)
		return
	}
	log.Info("read the way to the API server", "path", path)
}

// way is where the API server is: a kubeconfig that is named, which need not be there yet, else the pod's service account.
func way(c *config.APIServer) (kube.Config, error) {
	if c.Kubeconfig != "" {
		return kube.Config{Kubeconfig: c.Kubeconfig}, nil
	}
	return kube.FromServiceAccount(kube.ServiceAccountDir, os.Getenv)
}

// nodeName is the configured one, NODE_NAME, or the host's in lower case, as the kubelet has it.
func nodeName(configured string, env func(string) string, host func() (string, error)) (string, error) {
	if configured != "" {
		return configured, nil
	}
	if name := env("NODE_NAME"); name != "" {
		return name, nil
	}
	name, err := host()
	if err != nil {
		return "", fmt.Errorf("name of the node: %w; set nodeName", err)
	}
	return strings.ToLower(name), nil
}

// Node is the Node object, nil while it is not known.
func (c *cluster) Node() *kube.Node {
	if c.node == nil {
		return nil
	}
	if o := c.node.Load(); o.Known {
		return &o.Value
	}
	return nil
}

// Strategy is the NodeSLO's, nil while there is none. It is the same pointer as long as the object is.
func (c *cluster) Strategy() *strategy.Spec {
	if c.slo == nil {
		return nil
	}
	o := c.slo.Observed()
	if !o.Known {
		return nil
	}
	return &o.Value.Spec
}

// owned is whose the fields of the NodeSLO are; nil while there is none, or it does not tell.
func (c *cluster) owned() *status.NodeSLO {
	if c.slo == nil {
		return nil
	}
	o := c.slo.Observed()
	over := o.Value.Overrides
	if !o.Known || over == nil {
		return nil
	}
	out := &status.NodeSLO{Generation: o.Value.Generation, LeftOut: over.LeftOut}
	for i := range over.Fields {
		f := &over.Fields[i]
		one := status.Override{Field: f.Field, Value: f.Value}
		for _, by := range f.By {
			one.By = append(one.By, status.Owner(by))
		}
		out.Overrides = append(out.Overrides, one)
	}
	return out
}

// Asked is what the newest NodeMetric asks, the default policy of no object while there was none.
func (c *cluster) Asked() slo.Asked {
	if o := c.metric.Load(); o.Known {
		return o.Value
	}
	return slo.Asked{Collect: slo.DefaultCollect()}
}

// sources are the objects that are followed, each with why it is not, and before them the way to them while it cannot be read or is weak.
func (c *cluster) sources() []status.Source {
	if c.client == nil {
		return []status.Source{{Name: "apiserver", State: status.StateOff, Reason: "no way to an API server is configured"}}
	}
	var out []status.Source
	if since, err := c.client.Unread(); err != nil {
		out = append(out, source("apiserver", err, since))
	} else if weak := c.client.Weakness(); weak != "" {
		out = append(out, source("apiserver", errors.New(weak), time.Time{}))
	}
	node, spec, metric := c.node.Observed(), c.slo.Observed(), c.metric.Observed()
	about := source("node", node.Err, node.Since)
	if unread := decide.Unread(&node.Value, c.cpus()); node.Err == nil && unread != nil {
		about = source("node", unread, time.Time{})
	}
	return append(
		out, about, source("nodeslo", spec.Err, spec.Since), source("nodemetric", metric.Err, metric.Since),
	)
}

func source(name string, err error, since time.Time) status.Source {
	s := status.Source{Name: name, State: status.StateActive, Since: since}
	if err != nil {
		s.State, s.Reason = status.StateDegraded, err.Error()
	}
	return s
}

func (c *cluster) components() []run.Component {
	if c.client == nil {
		return nil
	}
	return []run.Component{
		{Name: "node object", Run: c.node.Run}, {Name: "NodeSLO", Run: c.slo.Run}, {Name: "NodeMetric", Run: c.metric.Run},
	}
}

func (c *cluster) close() {
	if c.client != nil {
		c.client.Close()
	}
}

// newPods connects the sources of pods: the kubelet, and the API server while the kubelet does not answer. A pod that is alive stays known
// though they leave it out, as a kubelet does that has started and has not heard of the API server.
func newPods(cfg *config.Koordlet, c *cluster, alive func(uid string) bool) (*pods.Keeper, error) {
	o := pods.Options{Interval: cfg.Kubelet.Interval.Std(), Alive: alive}
	client, err := c.kubelet(&cfg.Kubelet)
	if err != nil {
		return nil, err
	}
	if client != nil {
		o.Kubelet = pods.NewKubelet(cfg.Kubelet.Endpoint, client)
	}
	if c.client != nil {
		o.Follow = func(ctx context.Context, sink *pods.APISink) error {
			return c.client.Follow(ctx, kube.FollowOptions{Resource: kube.Pods, Selector: "spec.nodeName=" + c.name}, sink)
		}
	}
	return pods.New(o), nil
}

// kubelet is the way to the kubelet of this node, nil where none is configured.
func (c *cluster) kubelet(k *config.Kubelet) (*trust.Client, error) {
	if k.Endpoint == "" {
		return nil, nil
	}
	client, err := trust.New(trust.Options{
		ServerName: c.name, CAFile: k.CAFile, TokenFile: k.TokenFile, MayLack: true, CertFile: k.CertFile, KeyFile: k.KeyFile, SkipVerify: k.SkipVerify,
		UserAgent: c.agent, Answered: func(method, path string, code int, took time.Duration) { c.answered(method, path, code, took) },
	})
	if err != nil {
		return nil, fmt.Errorf("way to the kubelet: %w", err)
	}
	return client, nil
}
