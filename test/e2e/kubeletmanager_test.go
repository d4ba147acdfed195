// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"errors"
	"fmt"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/child"
	"github.com/koord-rt/koord-rt/test/lab/cluster"
	"github.com/koord-rt/koord-rt/test/lab/vm"
)

// managerDir is where a guest has koord-manager's role, its priority classes and the documents' ConfigMap.
const (
	managerDir = "/disk/manager"
	m6b        = "m06b-slo-controller-config.yaml"
)

// managedKinds are the manifests of the kinds that the role slo of koord-manager follows beside those that koordlet needs.
var managedKinds = []string{
	"scheduling.koordinator.sh_devices.yaml", "quota.koordinator.sh_elasticquotaprofiles.yaml", "scheduling.sigs.k8s.io_elasticquotas.yaml",
	"koordinator.sh_koordelasticquotas.yaml", "quota.koordinator.sh_teamelasticquotas.yaml",
}

// carryManager adds koord-manager and what it needs to the files of a guest.
func carryManager(t *testing.T, files map[string]string) {
	t.Helper()
	add := func(from, to string) {
		t.Helper()
		from, err := filepath.Abs(from)
		if err != nil {
			t.Fatal(err)
		}
		files[from] = to
	}
	add(bin("koord-manager"), filepath.Join(vm.GuestBin, "koord-manager"))
	for _, name := range managedKinds {
		add(filepath.Join("../../packaging/crds", name), filepath.Join(definitionsDir, name))
	}
	for _, name := range []string{"rbac-slo.yaml", "priorityclasses.yaml"} { // of this role alone
		add(filepath.Join("../../packaging/manifests", name), filepath.Join(managerDir, name))
	}
	add(filepath.Join("../lab/cluster/testdata/manifests", m6b), filepath.Join(managerDir, m6b))
}

// Keys of slo-controller-config.
const (
	keyQOS        = "resource-qos-config"
	keyBurst      = "cpu-burst-config"
	keyThreshold  = "resource-threshold-config"
	keyColocation = "colocation-config"
)

// changed is M6b with half of LSR's memory.min and of BE's memory.high, and with two of the class's other strategies.
const changed = `{"clusterStrategy": {
  "lsrClass": {"memoryQOS": {"enable": true, "minLimitPercent": 50, "lowLimitPercent": 100, "throttlingPercent": 120, "wmarkRatio": 95, "wmarkMinAdj": -25}},
  "beClass": {"memoryQOS": {"enable": true, "minLimitPercent": 0, "lowLimitPercent": 0, "throttlingPercent": 50, "wmarkRatio": 75, "wmarkMinAdj": 50},
    "cpuQOS": {"enable": true, "groupIdentity": -1}, "resctrlQOS": {"enable": true, "catRangeEndPercent": 50}}}}`

// halfBurst is cpu-burst-config: ls may borrow half of its quota.
const halfBurst = `{"clusterStrategy": {"policy": "cpuBurstOnly", "cpuBurstPercent": 50}}`

// suppresses is resource-threshold-config by which best effort gets what the others leave of 95 % of the node.
const suppresses = `{"clusterStrategy": {"enable": true, "cpuSuppressPolicy": "cfsQuota", "cpuSuppressThresholdPercent": 95, "memoryEvictThresholdPercent": 100}}`

// managed is the closed loop with koord-manager on cgroup v2. The NodeSLO and the NodeMetric are its own: what slo-controller-config says is in force
// in the pods that run and in those that come, its changes follow, and with a key its values leave the kernel. What the NodeMetric says that the
// node does not use is lent, and no longer when that is off. A load takes CPU from best effort, and from what is lent, and both come back. Afterwards
// both objects say what they said.
func (n *served) managed() {
	n.t.Helper()
	slo, metric := n.takeAway(nodeSLOs), n.takeAway(nodeMetrics)
	for _, name := range managedKinds {
		n.define(n.text(filepath.Join(definitionsDir, name)))
	}
	if err := n.c.InstallManager(n.t.Context(), managerDir); err != nil {
		n.t.Fatal(err)
	}
	begun, end := time.Now(), n.startManager()
	fresh := n.await(nodeSLOs+"/"+n.k.Node, "a NodeSLO of koord-manager's that is in force", cluster.Object.InForce)
	if says := fresh.Compact("spec"); says != "null" && says != "{}" {
		n.t.Errorf("the NodeSLO of a cluster without a strategy says %s", says)
	}
	n.await("/api/v1/nodes/"+n.k.Node, "a node that lends nothing", lendsNothing)
	n.tell("koord-manager has made the node's objects after %s", time.Since(begun).Round(time.Millisecond))

	n.strategies()
	n.tellManager(map[string]string{keyBurst: "", keyThreshold: "", keyColocation: ""})
	n.have(n.ready("ls"), "cpu.max.burst=0", "pod cpu.max.burst=0")
	n.within(20*time.Second, "quota of best effort without suppression", -1, -1, n.quota)
	n.have(n.ready("late"), "cpu.max=50000 100000", "pod cpu.max=50000 100000")
	n.await("/api/v1/nodes/"+n.k.Node, "a node that lends nothing any more", lendsNothing)
	empty := n.await(nodeSLOs+"/"+n.k.Node, "a NodeSLO without the keys", func(o cluster.Object) bool {
		return o.At("spec", "cpuBurstStrategy") == nil && o.At("spec", "resourceUsedThresholdWithBE") == nil && o.InForce()
	})
	if says := empty.Compact("spec"); says != "null" && says != "{}" {
		n.t.Errorf("the NodeSLO without the keys says %s", says)
	}
	end()
	came := []cluster.Object{n.ready("late"), n.ready("later")}
	for _, pod := range came {
		if err := n.c.Admin().Delete(n.t.Context(), workPods+pod.Str("metadata", "name"), -1); err != nil {
			n.t.Fatal(err)
		}
	}
	for _, pod := range came {
		n.gone(pod)
	}
	if err := n.c.Admin().Delete(n.t.Context(), managersConfig, -1); err != nil {
		n.t.Fatal(err)
	}
	n.takeAway(nodeSLOs)
	n.takeAway(nodeMetrics)
	n.giveBack(nodeSLOs, slo)
	n.giveBack(nodeMetrics, metric)
	n.inForce()
}

const managersConfig = "/api/v1/namespaces/" + cluster.ManagerNamespace + "/configmaps/slo-controller-config"

// strategies: the ConfigMap comes, changes, and loses a key; pods come meanwhile.
func (n *served) strategies() {
	n.t.Helper()
	lsr, be, ls, second := n.ready("lsr"), n.ready("be"), n.ready("ls"), n.ready("second")
	n.have(lsr, "memory.min=0", "memory.low=0", "memory.high=max")
	n.have(be, beFree...)
	n.within(20*time.Second, "quota of best effort without a strategy", -1, -1, n.quota)
	inContainer := func(wants []string) (own []string) {
		for _, w := range wants {
			if !strings.HasPrefix(w, "above ") {
				own = append(own, w)
			}
		}
		return own
	}
	took := n.follows(func() { n.define(n.text(filepath.Join(managerDir, m6b))) }, func(o cluster.Object) bool {
		return class(o, "lsrClass", "memoryQOS", "minLimitPercent") == 100 && class(o, "beClass", "memoryQOS", "throttlingPercent") == 80
	}, values{lsr, inContainer(lsrKeeps)}, values{be, beYields}, values{second, []string{"memory.high=" + strconv.Itoa(throttled)}})
	n.have(lsr, lsrKeeps...)
	n.tell("M6b: %s", took)

	n.tellManager(map[string]string{keyThreshold: suppresses, keyColocation: lends})
	quota := grant{what: "quota of best effort by the ConfigMap", read: n.quota, least: 1500}
	free := n.a.granted(20*time.Second, quota)
	calm := n.lent("on a calm node", func(_, busy float64) bool { return busy < 500 })
	const each = `"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"64Mi"`
	n.batch("late", "batch-high", "", each, "resources: {requests: {"+each+"}, limits: {"+each+"}}")
	const guaranteed = "{cpu: 100m, memory: 64Mi}"
	n.make("later", "labels: {koordinator.sh/qosClass: LSR}", "resources: {requests: "+guaranteed+", limits: "+guaranteed+"}")
	late, later := n.ready("late"), n.ready("later")
	// What bounds their CPU while they are suppressed is the class's quota.
	n.have(late, append([]string{"cpu.max=max 100000", "memory.max=67108864", "pod cpu.max=max 100000", "pod memory.max=67108864"}, beYields...)...)
	n.have(later, append(inContainer(lsrKeeps), "above memory.min=134217728", "above memory.low=134217728")...)

	protected := []string{
		"memory.min=33554432", "memory.low=67108864", "memory.high=80527360", "pod memory.min=33554432", "pod memory.low=67108864",
		"pod memory.max=67108864",
	}
	halved, borrows := []string{"memory.high=33554432"}, []string{"cpu.max.burst=25000", "pod cpu.max.burst=25000"}
	took = n.follows(func() { n.tellManager(map[string]string{keyQOS: changed, keyBurst: halfBurst}) }, func(o cluster.Object) bool {
		return class(o, "lsrClass", "memoryQOS", "minLimitPercent") == 50 && o.Int("spec", "cpuBurstStrategy", "cpuBurstPercent") == 50
	}, values{lsr, protected}, values{later, protected}, values{be, halved}, values{late, halved}, values{ls, borrows},
		values{second, []string{"pod cpu.idle=1"}}) // it has no batch-cpu, for which its weight would count
	n.inGroups("BE", ls, be, late)
	if got := n.file(path.Join(resctrl, "BE"), "schemata"); !strings.Contains(got, "L3:0=3ff;1=3ff") {
		n.t.Errorf("schemata of group BE: %q", got)
	}
	n.tell("changed: %s", took)
	stop := n.spinIn([]string{n.dir(n.ready("busy"))}, 3) // after late has begun, which the quota would hold up
	quota.what, quota.busy, quota.least, quota.most = "quota of best effort by the ConfigMap, while an LS pod uses three CPUs", 3, 20, free-800
	n.a.granted(20*time.Second, quota)
	held := n.fewest(n.quota)
	loaded := n.lent("while an LS pod uses three CPUs", func(batch, busy float64) bool { return busy > 2000 && batch < calm })
	stop()

	begun := time.Now()
	n.tellManager(map[string]string{keyQOS: ""})
	for _, pod := range []cluster.Object{lsr, later} {
		n.have(pod, lsrFree...)
	}
	for _, pod := range []cluster.Object{be, late} {
		n.have(pod, beFree...)
	}
	n.have(second, "memory.high=max", "pod cpu.idle=0")
	n.have(ls, borrows...)
	n.inGroups("", ls, be, late)
	n.tell("what the key said has left the kernel after %s", time.Since(begun).Round(time.Millisecond))
	quota.what, quota.busy, quota.least, quota.most = "quota of best effort by the ConfigMap, after the load", 0, held+800, 0
	after := n.a.granted(20*time.Second, quota)
	n.lent("after the load", func(batch, busy float64) bool { return busy < 1000 && batch > loaded })
	n.tell("cpu.max of best effort by the ConfigMap, in thousandths of a CPU: calm %d, while an LS pod uses three CPUs %d, afterwards %d", free, held, after)
}

// quota is that of best effort, in thousandths of a CPU; -1 for none.
func (n *served) quota() (int, error) { return quotaIn(n.besteffort(), "cpu.max") }

// class is a number of a class of the NodeSLO's resourceQOSStrategy.
func class(o cluster.Object, at ...any) int {
	return o.Int(append([]any{"spec", "resourceQOSStrategy"}, at...)...)
}

// inGroups waits until best-effort pods are in that resctrl group, and an LS pod in that of the machine.
func (n *served) inGroups(group string, ls cluster.Object, be ...cluster.Object) {
	n.t.Helper()
	n.eventually(shortest, func() error {
		err := n.allIn(ls, "")
		for _, pod := range be {
			err = errors.Join(err, n.allIn(pod, group))
		}
		return err
	})
}

// values of a pod are in the form of have.
type values struct {
	pod   cluster.Object
	wants []string
}

// follows makes a change and waits until the NodeSLO says so, the kernel has it and the NodeSLO's status says of this very spec that it is in force:
// no sooner than the kernel has it.
func (n *served) follows(change func(), says func(cluster.Object) bool, kernel ...values) (took string) {
	n.t.Helper()
	var written, stands, told time.Duration
	begun := time.Now()
	note := func(at *time.Duration) {
		if *at == 0 {
			*at = time.Since(begun).Round(time.Millisecond)
		}
	}
	change()
	n.eventually(30*time.Second, func() error {
		o, err := n.c.Admin().Get(n.t.Context(), nodeSLOs+"/"+n.k.Node)
		if err != nil {
			return err
		}
		if !says(o) {
			return fmt.Errorf("the NodeSLO does not say it: %s", o.Compact("spec"))
		}
		note(&written)
		for _, k := range kernel { // later than the status was read
			err = errors.Join(err, n.lacks(k.pod, k.wants...))
		}
		if err == nil {
			note(&stands)
		}
		if !o.InForce() {
			return errors.Join(fmt.Errorf("not in force by its status: %s", o.Compact("status")), err)
		}
		if err != nil && told == 0 {
			n.t.Errorf("in force by the NodeSLO's status, which the kernel knows nothing of: %v", err)
		}
		note(&told)
		return err
	})
	return fmt.Sprintf("in the NodeSLO after %s, in the kernel after %s, in force by its status after %s", written, stands, told)
}

// startManager starts koord-manager with the rights of its role; end ends it as a rollout does.
func (n *served) startManager() (end func()) {
	n.t.Helper()
	at, err := cluster.FreeAddresses(3)
	if err != nil {
		n.t.Fatal(err)
	}
	flags, err := n.c.ManagerFlags(at[0], at[1], at[2])
	if err != nil {
		n.t.Fatal(err)
	}
	log := &syncBuffer{}
	cmd := exec.Command(bin("koord-manager"), append(flags, "--roles=slo", "--v=4")...)
	cmd.Stdout, cmd.Stderr = log, log
	exited, err := child.Start(cmd, syscall.SIGKILL)
	if err != nil {
		n.t.Fatal(err)
	}
	runs := true
	n.t.Cleanup(func() {
		if n.t.Failed() {
			n.t.Logf("koord-manager's log:\n%s", tail(log.String(), 6000))
		}
		if runs {
			_ = cmd.Process.Kill() // of a step that failed; it may have ended by itself
			<-exited
		}
	})
	return func() {
		n.t.Helper()
		_ = cmd.Process.Signal(syscall.SIGTERM) // how it ends is looked at below
		select {
		case <-exited:
			runs = false
			if !cmd.ProcessState.Success() {
				n.t.Errorf("koord-manager ended: %s", cmd.ProcessState)
			}
		case <-time.After(patience(shortest)):
			n.t.Fatal("koord-manager does not end")
		}
	}
}

func (n *served) tellManager(keys map[string]string) {
	n.t.Helper()
	if err := n.c.TellManager(n.t.Context(), keys); err != nil {
		n.t.Fatal(err)
	}
}

// takeAway deletes the node's object of a kind and returns it.
func (n *served) takeAway(kind string) cluster.Object {
	n.t.Helper()
	o, err := n.c.Admin().Get(n.t.Context(), kind+"/"+n.k.Node)
	if err != nil {
		n.t.Fatal(err)
	}
	if err := n.c.Admin().Delete(n.t.Context(), kind+"/"+n.k.Node, -1); err != nil {
		n.t.Fatal(err)
	}
	return o
}

// giveBack makes an object anew that was taken away.
func (n *served) giveBack(kind string, was cluster.Object) {
	n.t.Helper()
	anew := cluster.Object{
		"apiVersion": was["apiVersion"], "kind": was["kind"], "metadata": map[string]any{"name": n.k.Node}, "spec": was["spec"],
	}
	if _, err := n.c.Admin().Create(n.t.Context(), kind, anew); err != nil {
		n.t.Fatal(err)
	}
}
