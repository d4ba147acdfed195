// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/test/lab"
	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
	"github.com/koord-rt/koord-rt/test/lab/host"
	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// Where the repository has what is installed, from its root.
const (
	definitions = "packaging/crds"
	manifests   = "packaging/manifests"
	agentRights = "test/lab/cluster/testdata/koordlet/install"
)

// clustered is one run of the demo of a whole cluster.
type clustered struct {
	*demo
	lend    int
	cpus    int
	cluster *cluster.Cluster
	node    *cluster.Kubelet
	manager *process
	// web is the LS pod, batch the best-effort one.
	web, batch cluster.Object
}

// errBusy: this machine has nothing left to show it with. As a step's it ends the demo early, and has been said.
var errBusy = errors.New("other programs use this machine")

func (d *clustered) run(ctx context.Context) error {
	d.screen.title("koord-rt: a cluster, from a ConfigMap to the kernel and back")
	ids, err := cpus()
	if err != nil {
		return err
	}
	if d.cpus = len(ids); d.cpus < 2 {
		d.screen.line("  This machine has one CPU: the control plane, the load and the work that should yield would share it. Not shown; two are enough.")
		return nil
	}
	for _, step := range []func(context.Context) error{
		d.startPlane, d.startAgents, d.startManager, d.lendOut, d.makeBatch, d.suppress, d.loadComesAndGoes,
	} {
		err := step(ctx)
		if errors.Is(err, errBusy) {
			break
		}
		if err != nil {
			return d.explained(err)
		}
	}
	if d.hold {
		return d.look(ctx)
	}
	return nil
}

// explained adds the end of the log of a program of ours that has ended.
func (d *clustered) explained(err error) error {
	for _, p := range []*process{d.plugin, d.agent, d.manager} {
		if p != nil && p.ended() {
			err = fmt.Errorf("%w\n%s has ended:\n%s", err, p.name, p.tail())
		}
	}
	return err
}

// startPlane builds what is missing and starts containerd, the control plane and the kubelet.
func (d *clustered) startPlane(ctx context.Context) error {
	cache, err := parts.Open(parts.Options{Progress: progress{d.screen}})
	if err != nil {
		return err
	}
	if !cached(parts.KubeScheduler) || !cached(parts.Runc) {
		d.screen.line("The first run builds containerd, etcd and Kubernetes from source into %s: up to half an hour on two CPUs, once.", cache.Root())
	}
	for _, p := range []string{parts.Etcd, parts.KubeAPIServer, parts.Kubelet, parts.KubeScheduler, parts.KubeControllers} {
		if _, err := cache.Get(ctx, p); err != nil {
			return err
		}
	}
	o, err := cluster.WithCNI(ctx, cache, host.Options{Cache: cache})
	if err != nil {
		return err
	}
	if d.tree, err = cgroups.Detect(); err != nil {
		return err
	}
	if d.host, err = host.Start(ctx, o); err != nil {
		return err
	}
	d.dir, d.root = d.host.Dir, d.host.Cgroup
	if d.cluster, err = cluster.Start(ctx, cluster.Options{Dir: filepath.Join(d.dir, "cluster"), Cache: cache}); err != nil {
		return err
	}
	versions, err := lab.Versions()
	if err != nil {
		return err
	}
	d.step("etcd %s and kube-apiserver %s run in %s", versions["ETCD"], versions["KUBERNETES"], d.dir)
	if d.node, err = d.cluster.StartKubelet(ctx, cluster.KubeletOptions{Runtime: d.host.Socket, CgroupRoot: d.host.Cgroup}); err != nil {
		return err
	}
	for _, part := range []string{parts.KubeControllers, parts.KubeScheduler} {
		if err := d.cluster.StartComponent(ctx, part); err != nil {
			return err
		}
	}
	d.step("kubelet: %s is Ready, %d CPUs, Linux %s; kube-scheduler and kube-controller-manager run, all as upstream ships them", d.node.Node, d.cpus, kernelRelease())
	return nil
}

// startAgents installs what the node agent needs and starts it beside koord-nri. What they do comes from the API server alone.
func (d *clustered) startAgents(ctx context.Context) error {
	for _, dir := range []string{definitions, agentRights} {
		if err := d.cluster.ApplyFolder(ctx, dir); err != nil {
			return err
		}
	}
	if err := d.cluster.Namespace(ctx, shop); err != nil {
		return err
	}
	none := filepath.Join(d.dir, "koord", "none.yaml")
	if err := d.launchPlugin(ctx, none); err != nil {
		return err
	}
	kubeconfig, err := d.cluster.Kubeconfig("koordlet")
	if err != nil {
		return err
	}
	identity := strings.TrimSuffix(kubeconfig, ".kubeconfig")
	config, err := d.config("koordlet", "KoordletConfig", map[string]any{
		"strategyFile": none, "nodeName": d.node.Node, "runtimeEndpoint": "unix://" + d.host.Socket, "apiServer": map[string]any{"kubeconfig": kubeconfig},
		"kubelet": map[string]any{
			"endpoint": "https://" + net.JoinHostPort(d.node.IP, strconv.Itoa(d.node.Port)), "caFile": d.cluster.CA,
			"certFile": identity + ".crt", "keyFile": identity + ".key", "interval": "2s",
		},
		// Somebody's machine may be nearly full: no pod of the demo is to go for that.
		"evict": map[string]any{"mode": "off"},
	})
	if err != nil {
		return err
	}
	if d.agent, err = launch("koordlet", filepath.Join(d.dir, "koord", "koordlet.log"), "--config", config); err != nil {
		return err
	}
	if err := d.agent.ready(ctx, d.runDir(), func(s *status.Status) bool { return !s.ConnectedSince.IsZero() }); err != nil {
		return err
	}
	d.step("koord-nri and koordlet run on the node")
	return nil
}

// startManager starts koord-manager with the rights that its manifests give it, and has its webhooks called.
func (d *clustered) startManager(ctx context.Context) error {
	if err := d.cluster.InstallManager(ctx, manifests); err != nil {
		return err
	}
	at, err := cluster.FreeAddresses(3)
	if err != nil {
		return err
	}
	flags, err := d.cluster.ManagerFlags(at[0], at[1], at[2])
	if err != nil {
		return err
	}
	if d.manager, err = launch("koord-manager", filepath.Join(d.dir, "koord", "manager.log"), flags...); err != nil {
		return err
	}
	if err := d.cluster.HookManager(ctx, filepath.Join(manifests, "webhook.yaml"), at[2]); err != nil {
		return fmt.Errorf("%w\nkoord-manager:\n%s", err, d.manager.tail())
	}
	d.step("koord-manager runs with the rights of %s; the API server calls its webhooks", manifests)
	return nil
}

// look leaves everything as it is until the user has seen enough.
func (d *clustered) look(ctx context.Context) error {
	kubectl, err := d.cluster.KubectlCommand(ctx)
	if err != nil {
		return err
	}
	d.screen.title("Everything runs until Ctrl-C. In another terminal:")
	d.screen.command(strings.Join(kubectl.Args, " ") + " get nodeslo,nodemetric,pods -A")
	d.screen.command(fmt.Sprintf("bin/koordctl --run-dir %s diff --all", d.runDir()))
	d.screen.command("less " + filepath.Join(d.dir, "koord", "manager.log"))
	<-ctx.Done()
	return nil
}

// deployment is the workload's path.
const deployment = "/apis/apps/v1/namespaces/" + shop + "/deployments/crunch"

// close takes everything back, whatever state the demo is in. The Deployment goes first, else it makes new pods.
func (d *clustered) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var errs []error
	if d.node != nil {
		errs = append(errs, d.removeDeployment(ctx), d.node.Close(ctx))
	}
	errs = append(errs, d.manager.stop(), d.agent.stop())
	if d.cluster != nil {
		errs = append(errs, d.cluster.Close())
	}
	return errors.Join(append(errs, d.demo.close())...)
}

func (d *clustered) removeDeployment(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	admin := d.cluster.Admin()
	if _, err := admin.Get(ctx, deployment); cluster.Refused(err, "NotFound") {
		return nil
	}
	if err := admin.Delete(ctx, deployment+"?propagationPolicy=Foreground", -1); err != nil {
		return err
	}
	_, err := admin.Wait(ctx, deployment, "end of the Deployment", func(o cluster.Object) bool { return o == nil })
	return err
}

func (d *clustered) farewell(left error) {
	d.bye(left, "Pods, kubelet, control plane, containerd, koord-manager, koordlet, koord-nri")
}
