// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/koord-rt/koord-rt/test/lab"
	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/folder"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// KubeletOptions of one node.
type KubeletOptions struct {
	Runtime      string            // required: path of the CRI socket, a runtime's or a proxy's
	Images       string            // optional: path of the image service's socket; default Runtime
	CgroupRoot   string            // required: name of a control group made for this node: host.Paths.Cgroup
	Node         string            // optional: default node0
	FeatureGates map[string]bool   // optional: EventedPLEG ...
	Labels       map[string]string // optional: node labels; NodeRestriction allows only some in kubernetes.io
	Config       map[string]any    // optional: fields of KubeletConfiguration, over ours
}

// Kubelet is one node; it may be down for a while.
type Kubelet struct {
	Node       string
	IP         string // of the node and of the kubelet's server
	Port       int    // of the kubelet's server: HTTPS with our CA
	Root       string // --root-dir
	Logs       string // pod logs
	Log        string // kubelet's own
	CgroupRoot string

	cluster *Cluster
	config  string
	kube    string // kubeconfig
	options KubeletOptions
	process *process
	saved   []sysctl
}

// StartKubelet starts the real kubelet and waits until its node is Ready.
func (c *Cluster) StartKubelet(ctx context.Context, o KubeletOptions) (*Kubelet, error) {
	if o.Runtime == "" || o.CgroupRoot == "" {
		return nil, errors.New("start kubelet: Runtime and CgroupRoot are required")
	}
	if o.Node == "" {
		o.Node = "node0"
	}
	if o.Images == "" {
		o.Images = o.Runtime
	}
	k := &Kubelet{Node: o.Node, CgroupRoot: o.CgroupRoot, cluster: c, options: o, Root: c.kubeletRoot(o.Node)}
	k.Logs, k.Log, k.config = filepath.Join(k.Root, "logs"), c.file("kubelet-"+o.Node+".log"), c.file("kubelet-"+o.Node+".json")
	if err := k.prepare(); err != nil {
		return nil, errors.Join(err, k.Close(ctx))
	}
	if err := k.Restart(ctx); err != nil {
		return nil, errors.Join(err, k.Close(ctx))
	}
	return k, nil
}

func (k *Kubelet) prepare() error {
	var err error
	if k.saved, err = readSysctls(); err != nil {
		return err
	}
	if err := os.MkdirAll(k.Logs, 0o755); err != nil {
		return fmt.Errorf("create kubelet folder: %w", err)
	}
	if k.IP, err = nodeIP(); err != nil {
		return err
	}
	ports, err := lab.FreePorts(k.IP, 1)
	if err != nil {
		return err
	}
	k.Port = ports[0]
	serving, err := k.cluster.ca.server("system:node:"+k.Node, k.IP, k.Node)
	if err != nil {
		return err
	}
	if err := serving.write(k.cluster.file("kubelet-" + k.Node)); err != nil {
		return err
	}
	if k.kube, err = k.cluster.Kubeconfig("system:node:"+k.Node, "system:nodes"); err != nil {
		return err
	}
	if err := makeCgroupRoot(k.CgroupRoot); err != nil {
		return err
	}
	return k.writeConfig()
}

// Restart ends the kubelet if it runs, starts it and waits until the node is Ready by
// its own word: a Ready from before does not count.
func (k *Kubelet) Restart(ctx context.Context) error {
	if err := k.End(syscall.SIGTERM); err != nil {
		return err
	}
	bin, err := k.cluster.cache.File(ctx, parts.Kubelet, "kubelet")
	if err != nil {
		return err
	}
	args := []string{
		"--config=" + k.config, "--kubeconfig=" + k.kube, "--root-dir=" + k.Root, "--cert-dir=" + filepath.Join(k.Root, "pki"),
		"--hostname-override=" + k.Node, "--node-ip=" + k.IP, "--v=2",
	}
	if len(k.options.Labels) > 0 {
		var l []string
		for key, value := range k.options.Labels {
			l = append(l, key+"="+value)
		}
		args = append(args, "--node-labels="+strings.Join(l, ","))
	}
	var begun time.Time // the first report of a new node is its own word
	if _, err := k.cluster.admin.Get(ctx, "/api/v1/nodes/"+k.Node); err == nil {
		begun = time.Now()
	}
	if k.process, err = startProcess(k.Log, bin, args...); err != nil {
		return err
	}
	ready, cancel := k.process.alive(ctx, k.cluster.options.Limit)
	defer cancel()
	_, err = k.cluster.admin.Wait(ready, "/api/v1/nodes/"+k.Node, "node "+k.Node, func(n Object) bool {
		return heartbeat(n).After(begun) && n.Condition("Ready") == "True"
	})
	// The kubelet tunes the whole machine's kernel when it starts; a lab must not.
	if err := errors.Join(err, writeSysctls(k.saved)); err != nil {
		return k.process.failed(err)
	}
	return nil
}

// heartbeat is the time of the node's last Ready report, cut to whole seconds.
func heartbeat(n Object) time.Time {
	list, _ := n.At("status", "conditions").([]any)
	for i := range list {
		if n.Str("status", "conditions", i, "type") == "Ready" {
			at, err := time.Parse(time.RFC3339, n.Str("status", "conditions", i, "lastHeartbeatTime"))
			if err == nil {
				return at
			}
		}
	}
	return time.Time{}
}

// End ends the kubelet: SIGTERM as a service manager does, SIGKILL as a crash. Pods live on.
func (k *Kubelet) End(sig syscall.Signal) error {
	err := k.process.end(sig, 20*time.Second)
	k.process = nil
	return err
}

// Pid of the kubelet, 0 while it is down.
func (k *Kubelet) Pid() int { return k.process.pid() }

// Metrics reads the kubelet's own metrics in Prometheus' text format.
func (k *Kubelet) Metrics(ctx context.Context) (string, error) {
	return k.cluster.admin.Text(ctx, "/api/v1/nodes/"+k.Node+"/proxy/metrics")
}

// Resources reads what metrics-server reads of the kubelet for kubectl top, in Prometheus' text format.
func (k *Kubelet) Resources(ctx context.Context) (string, error) {
	return k.cluster.admin.Text(ctx, "/api/v1/nodes/"+k.Node+"/proxy/metrics/resource")
}

// Close deletes the node's pods, waits until they are gone, ends the kubelet and removes its node,
// mounts, control groups and files. Close it before its runtime. It may be called again.
func (k *Kubelet) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 4*time.Minute)
	defer cancel()
	var errs []error
	if k.process != nil {
		errs = append(errs, k.removePods(ctx))
	}
	errs = append(errs, k.End(syscall.SIGTERM))
	if k.cluster.api != nil {
		errs = append(errs, k.cluster.admin.Delete(ctx, "/api/v1/nodes/"+k.Node, 0))
	}
	errs = append(errs, writeSysctls(k.saved), folder.Unmount(k.Root), cgroups.RemoveAll(ctx, k.CgroupRoot),
		removeLogLinks(k.Logs), removeDevicePlugins(), os.RemoveAll(k.Root))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close kubelet %s: %w", k.Node, err)
	}
	return nil
}

func (k *Kubelet) removePods(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	mine := "/api/v1/pods?fieldSelector=spec.nodeName=" + k.Node
	pods, err := k.cluster.admin.Items(ctx, mine)
	if err != nil {
		return err
	}
	for _, p := range pods {
		path := "/api/v1/namespaces/" + p.Str("metadata", "namespace") + "/pods/" + p.Str("metadata", "name")
		if err := k.cluster.admin.Delete(ctx, path, time.Second); err != nil {
			return err
		}
	}
	return poll(ctx, "end of pods", func(ctx context.Context) error {
		left, err := k.cluster.admin.Items(ctx, mine)
		if err != nil || len(left) > 0 {
			return errors.Join(err, fmt.Errorf("%d pods are left", len(left)))
		}
		// A pod deleted without grace leaves the API server before its containers end.
		groups, err := podCgroups(k.CgroupRoot)
		if err != nil || len(groups) > 0 {
			return errors.Join(err, fmt.Errorf("control groups are left: %v", groups))
		}
		return nil
	})
}

// nodeIP is this machine's first global IPv4 address: a kubelet refuses a loopback one.
func nodeIP() (string, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return "", fmt.Errorf("find the node's address: %w", err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String(), nil
		}
	}
	return "", errors.New("find the node's address: no interface has a global IPv4 address")
}

// unixURL is the form in which the kubelet takes a socket.
func unixURL(path string) string { return "unix://" + path }
