// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/daemon/ledger"
	"github.com/koord-rt/koord-rt/model/journal"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// lifecycleStrategyFile changes the strategy under running containers. A file that is half written changes nothing.
func lifecycleStrategyFile(r *rig) {
	file := filepath.Join(filepath.Dir(r.config), "strategy.yaml")
	put := r.replaceStrategy
	burst := func(percent string) string {
		return "cpuBurstStrategy: {policy: auto, cpuBurstPercent: " + percent + "}\n"
	}
	wantBurst := func(us string) []string {
		if r.tree.V2() {
			return []string{"main cpu.max.burst=" + us, "pod cpu.max.burst=" + us}
		}
		return []string{"main cpu.cfs_burst_us=" + us, "pod cpu.cfs_burst_us=" + us}
	}
	put(burst("40"))
	r.up("", onlyEvents()) // the pod follows the file
	run := r.pod(lsPod("strategy"))
	r.now(run, wantBurst("20000"))

	bad := []string{"cpuBurstStrategy: {policy: auto, cpuBurstPer", "cpuBurstStrategy: {policy: auto, cpuBurstPercent: -7}\n", "\x00\x01", identities("3"), identities("-2")}
	for i, bad := range bad {
		refused := strings.Count(r.log.String(), "what=strategy")
		put(bad)
		r.eventually(5*time.Second, func() error {
			if strings.Count(r.log.String(), "what=strategy") == refused {
				return fmt.Errorf("the log does not say that %q is refused", bad)
			}
			return nil
		})
		r.now(run, wantBurst("20000"))
		if i < rounds(len(bad)) {
			r.now(r.pod(lsPod(fmt.Sprint("strategy-bad", i))), wantBurst("20000"))
		}
	}
	for _, value := range []string{"3", "-2"} {
		if text := value + ", want -1..2"; !strings.Contains(r.log.String(), text) {
			r.t.Errorf("the log does not say %q of the group identity", text)
		}
	}
	if !strings.Contains(r.log.String(), file) {
		r.t.Errorf("the log does not name the file")
	}
	if n := r.metric("koord_rt_nri_problems_total", `key="strategy"`); n != float64(len(bad)) {
		r.t.Errorf("%v bad strategies were counted, want %d", n, len(bad))
	}
	r.eventually(8*time.Second, func() error {
		for _, p := range r.status().Problems {
			if strings.Contains(p.Where+p.Key, "strategy") {
				return nil
			}
		}
		return fmt.Errorf("the status does not tell of the bad strategy: %v", r.status().Problems)
	})
	r.eventually(5*time.Second, func() error {
		records, _, err := ledger.ReadAll(r.run)
		kept := 0
		for i := range records {
			if p := &records[i]; p.Via == journal.ViaProblem && p.Key == "strategy" && p.Target.Name == file {
				kept++
			}
		}
		if err == nil && kept != len(bad) {
			err = fmt.Errorf("the ledger has %d bad strategies of %s, want %d", kept, file, len(bad))
		}
		return err
	})
	put(burst("80") + identities("0"))
	r.soon(5*time.Second, run, wantBurst("40000"))
	r.now(r.pod(lsPod("strategy-good")), wantBurst("40000"))
	// G4 of the documents: LSR before LS before BE by CPUs, policy, cpu.idle and weights, whichever number the strategy gives to LSR.
	_, rest := cpus()
	lsr, be := r.pod(lsrPod("strategy-lsr")), r.pod(idlePod("strategy-be"))
	var before [3]weights
	ordered := func() {
		r.t.Helper()
		r.now(lsr, append(wants("LSR", ""), "main @sched=0", "pod cpu.idle=0"))
		r.soon(5*time.Second, run, []string{"main @sched=0", "pod cpu.idle=0", "main cpuset.cpus=" + rest})
		r.now(be, wants("idle", rest))
		got := [3]weights{r.weights(lsr), r.weights(run), r.weights(be)}
		top, middle, last := got[0], got[1], got[2]
		inOrder := top.container > middle.container && middle.container > last.container && top.pod > middle.pod && middle.pod > last.pod
		if !inOrder || middle.class <= last.class || top.pod <= last.class { // the pod of LSR is in no class
			r.t.Errorf("CPU weights of LSR, LS and BE: %+v", got)
		}
		if before != [3]weights{} && got != before {
			r.t.Errorf("CPU weights of LSR, LS and BE were %+v, and are %+v with another value for LSR", before, got)
		}
		before = got
	}
	ordered()
	put(burst("60") + identities("2"))
	r.soon(5*time.Second, run, wantBurst("30000"))
	ordered()
	put("cpuBurstStrategy: {policy: none}\n")
	r.soon(5*time.Second, run, wantBurst("0"))
}

// weights are the kernel's CPU weights of a container, of its pod, and of what that stands in.
type weights struct{ container, pod, class int }

func (r *rig) weights(run *kubelet.Running) (w weights) {
	r.t.Helper()
	file := "cpu.shares"
	if r.tree.V2() {
		file = "cpu.weight"
	}
	pod := r.kube.PodDir(run, r.controller(file))
	for dir, to := range map[string]*int{
		r.kube.ContainerDir(run, "main", r.controller(file)): &w.container, pod: &w.pod, filepath.Dir(pod): &w.class,
	} {
		n, err := r.bytes(dir, file)
		if err != nil {
			r.t.Fatal(err)
		}
		*to = n
	}
	return w
}

// identities is M5's order of the classes, with another value for LSR.
func identities(lsr string) string {
	return "resourceQOSStrategy:\n  lsrClass: {cpuQOS: {enable: true, groupIdentity: " + lsr + "}}\n" +
		"  lsClass: {cpuQOS: {enable: true, groupIdentity: 2}}\n  beClass: {cpuQOS: {enable: true, groupIdentity: -1}}\n"
}

// replaceStrategy puts another strategy file in the place of the present one: what is written in place may be read before it is whole,
// and is refused.
func (r *rig) replaceStrategy(text string) {
	r.t.Helper()
	file := filepath.Join(filepath.Dir(r.config), "strategy.yaml")
	err := os.WriteFile(file+".new", []byte(text), 0o600)
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// lifecycleHostileAnnotations starts pods whose labels and annotations nobody can use. They start with what is valid
// beside it, and each bad key is named.
func lifecycleHostileAnnotations(r *rig) {
	r.up(standard, nil)
	r.notAlways("decisions were late", func(round string) float64 {
		r.hostilePods("hostile-" + round)
		return r.metric("koord_rt_nri_event_late_total")
	})
	if n := r.metric("koord_rt_nri_connects_total"); n != 1 {
		r.t.Errorf("%v connections were made: the runtime has dropped the plugin", n)
	}
	if n := r.metric("koord_rt_nri_fail_open_total") - r.metric("koord_rt_nri_fail_open_total", `reason="deadline"`); n != 0 {
		r.t.Errorf("%v decisions failed", n)
	}
}

// notAlways fails where a count rises with every round. A machine that takes the CPU away makes it rise now and then, in an emulated one
// always; what is ours comes each time.
func (r *rig) notAlways(what string, count func(round string) float64) {
	r.t.Helper()
	var before float64
	for i := range 4 {
		n := count(strconv.Itoa(i))
		if n == before || emulated() {
			return
		}
		r.t.Logf("round %d: %v %s", i, n-before, what)
		before = n
	}
	r.t.Errorf("in every round: %v %s", before, what)
}

// hostilePods starts the pods, whose names begin as said.
func (r *rig) hostilePods(prefix string) {
	r.t.Helper()
	big := strings.Repeat("x", 1<<20)
	bad := map[string]string{
		"koordinator.sh/cpuBurst":                    big,
		"koordinator.sh/memoryQOS":                   `{"minLimitPercent":`,
		"scheduling.koordinator.sh/resource-status":  `{"cpuset":"0-4294967295,,7-1"}`,
		"koordinator.sh/blkioQOS":                    strings.Repeat("[", 20000),
		"scheduling.koordinator.sh/device-allocated": `{"gpu":[{"minor":-1,"id":"../../etc"}]}`,
		"node.koordinator.sh/resctrl":                `{"llc":{"schemata":{"range":[90,10]}}}`,
		"koord-rt.dev/required":                      "everything,batch",
	}
	pods := map[string][]string{} // keys by name: each alone, but together where a pod takes its time
	for key := range bad {
		name := prefix + "-" + strings.ToLower(path.Base(key))
		if emulated() {
			name = prefix + "-together"
		}
		pods[name] = append(pods[name], key)
	}
	for name, keys := range pods {
		p := bePod(name)
		for _, key := range keys {
			p.Annotations[key] = bad[key]
		}
		run := r.demanding(p) // one does, beside what is unknown
		r.now(run, wants("BE", ""))
		for _, key := range keys {
			r.named(name, key)
		}
	}
	classes := lsPod(prefix + "-class")
	classes.Labels["koordinator.sh/qosClass"] = "GOLD"
	r.pod(classes)
	r.named(prefix+"-class", "koordinator.sh/qosClass")

	many := bePod(prefix + "-many")
	for i := range 4096 {
		many.Annotations[fmt.Sprintf("koordinator.sh/bad-%d", i)] = "{"
	}
	many.Annotations["koordinator.sh/cpuQOS"] = `{"groupIdentity":99}`
	r.now(r.pod(many), []string{"main @oom=900"})
	r.named(prefix+"-many", "koordinator.sh/cpuQOS")
	all := bePod(prefix + "-all")
	for _, key := range []string{"scheduling.koordinator.sh/resource-status", "koordinator.sh/cpuBurst", "koordinator.sh/memoryQOS", "koordinator.sh/blkioQOS"} {
		all.Annotations[key] = big[:256<<10]
	}
	r.now(r.pod(all), wants("BE", ""))
}

// named fails unless log, metric and ledger name the pod, the key and a reason.
func (r *rig) named(pod, key string) {
	r.t.Helper()
	r.eventually(5*time.Second, func() error {
		found := false
		for line := range strings.Lines(r.log.String()) {
			found = found || strings.Contains(line, "subject=default/"+pod) && strings.Contains(line, "key="+key) && strings.Contains(line, "reason=")
		}
		if !found {
			return fmt.Errorf("the log does not name %s of %s with a reason", key, pod)
		}
		if n := r.metric("koord_rt_nri_problems_total", `key="`+key+`"`); n < 1 {
			return fmt.Errorf("no problem with %s was counted", key)
		}
		out, err := r.ctl("explain", "default/"+pod)
		if err != nil {
			return fmt.Errorf("explain %s: %w: %s", pod, err, out)
		}
		for line := range strings.Lines(out) {
			if rest, ok := strings.CutPrefix(line, "problem: default/"+pod); ok && strings.Contains(rest, key+": ") {
				return nil
			}
		}
		return fmt.Errorf("explain does not name %s of %s:\n%s", key, pod, out)
	})
}
