// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/koord-rt/koord-rt/daemon/status"
	"github.com/koord-rt/koord-rt/model/topo"
	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/child"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// agent is a running koordlet on a rig's run directory.
type agent struct {
	// pressure is the section of that name in its configuration, nil for the defaults.
	pressure map[string]any
	// runtime is the runtime's socket, "" for the rig's.
	runtime string
	r       *rig
	config  string
	cmd     *exec.Cmd
	exited  <-chan struct{}
	log     *syncBuffer
	// kubelet is the way to one, server that to an API server; nil is none. dress changes the command of each start; may be nil.
	// here: it has the namespaces of the test's own thread.
	kubelet, server map[string]any
	dress           func(*exec.Cmd)
	here            bool
}

// suppressing is a strategy that holds the best-effort tier to what the others leave of 65 % of the node.
func suppressing(policy string) string {
	return "resourceUsedThresholdWithBE: {enable: true, cpuSuppressThresholdPercent: 65, cpuSuppressPolicy: " + policy + "}\n"
}

// koordlet starts the agent without kubelet and API server, on a strategy of its own.
func (r *rig) koordlet(spec string) *agent {
	r.t.Helper()
	a := r.newAgent()
	a.strategy(spec)
	a.start()
	return a
}

// newAgent is one that does not run yet; it ends with the test.
func (r *rig) newAgent() *agent {
	a := &agent{r: r, config: filepath.Join(filepath.Dir(r.config), "koordlet.yaml"), log: &syncBuffer{}}
	r.t.Cleanup(func() {
		a.end(syscall.SIGTERM)
		if r.t.Failed() {
			r.t.Logf("koordlet's log:\n%s", tail(a.log.String(), 6000))
		}
	})
	return a
}

// strategy writes the configuration with a strategy in it; a running agent reads it again.
func (a *agent) strategy(spec string) {
	a.r.t.Helper()
	var parsed any
	if err := yaml.Unmarshal([]byte(spec), &parsed); err != nil {
		a.r.t.Fatal(err)
	}
	a.configure(parsed)
}

// configure writes the configuration. Without a strategy the strategy file counts.
func (a *agent) configure(strategy any) {
	a.r.t.Helper()
	if err := os.WriteFile(a.config, a.document(strategy), 0o600); err != nil {
		a.r.t.Fatal(err)
	}
}

// document is the configuration.
func (a *agent) document(strategy any) []byte {
	a.r.t.Helper()
	config := a.r.base()
	delete(config, "socket")
	config["apiVersion"], config["kind"] = "koord-rt.dev/v1alpha1", "KoordletConfig"
	config["runtimeEndpoint"] = "unix://" + cmp.Or(a.runtime, a.r.host.Socket)
	config["kubelet"], config["apiServer"] = map[string]any{"endpoint": ""}, map[string]any{"mode": "off"}
	if a.kubelet != nil {
		config["kubelet"] = a.kubelet
	}
	if a.server != nil {
		config["apiServer"] = a.server
	}
	config["metrics"] = map[string]any{"address": "unix:" + filepath.Join(a.r.run, "koordlet-metrics.sock")}
	if strategy != nil {
		config["strategy"] = strategy
	}
	if a.pressure != nil {
		config["pressure"] = a.pressure
	}
	text, err := yaml.Marshal(config)
	if err != nil {
		a.r.t.Fatal(err)
	}
	return text
}

func (a *agent) start() {
	a.r.t.Helper()
	a.launch()
	a.connected()
}

// launch starts the process without waiting for anything.
func (a *agent) launch() {
	a.r.t.Helper()
	a.cmd = exec.Command(bin("koordlet"), "--config", a.config)
	a.cmd.Stderr, a.cmd.Stdout = a.log, a.log
	if a.dress != nil {
		a.dress(a.cmd)
	}
	start := child.Start
	if a.here {
		start = child.StartHere
	}
	var err error
	if a.exited, err = start(a.cmd, syscall.SIGKILL); err != nil {
		a.r.t.Fatal(err)
	}
}

// lives fails when the process has ended by itself.
func (a *agent) lives() {
	a.r.t.Helper()
	select {
	case <-a.exited:
		a.r.t.Fatalf("koordlet ended: %s\n%s", a.cmd.ProcessState, tail(a.log.String(), 3000))
	default:
	}
}

// connected waits until its status says that it knows the runtime's containers.
func (a *agent) connected() {
	a.r.t.Helper()
	cmd := a.cmd
	a.r.eventually(time.Minute, func() error {
		a.lives()
		entries, err := status.ReadAll(a.r.run, "/proc")
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.Status.PID == cmd.Process.Pid && !e.Status.ConnectedSince.IsZero() {
				return nil
			}
		}
		return fmt.Errorf("koordlet (pid %d) is not connected yet", cmd.Process.Pid)
	})
}

func (a *agent) end(sig syscall.Signal) {
	if a.cmd == nil {
		return
	}
	_ = a.cmd.Process.Signal(sig) // it may have ended by itself
	limit := patience(shortest)
	select {
	case <-a.exited:
	case <-time.After(limit):
		a.r.t.Errorf("koordlet did not end within %s of %s", limit, sig)
		_ = a.cmd.Process.Kill()
		<-a.exited
	}
	a.cmd = nil
}

// burn has n processes in a container spin until the result is called.
func (r *rig) burn(run *kubelet.Running, n int) (stop func()) {
	r.t.Helper()
	return r.spinIn(r.containerDirs(run), n)
}

// spinIn has n processes in the cgroup of these directories spin until the result is called.
func (r *rig) spinIn(dirs []string, n int) (stop func()) {
	r.t.Helper()
	var stops []func()
	for range n {
		stops = append(stops, r.spinOn(dirs, anyCPU))
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// loopsSay is what koordlet's status tells of each loop, on one line.
func (a *agent) loopsSay() string {
	e := status.Read(a.r.run, "/proc", "koordlet")
	if e.Agent == nil {
		return "no status: " + e.Err
	}
	said := make([]string, len(e.Agent.Loops))
	for i, l := range e.Agent.Loops {
		said[i] = fmt.Sprintf("%s %s %s %s", l.At.Format(time.TimeOnly), l.Name, l.Decision, l.Err)
	}
	return strings.Join(said, " | ")
}

// figures are koordlet's metrics.
func (a *agent) figures() (map[string]float64, error) {
	return scrape(over(filepath.Join(a.r.run, "koordlet-metrics.sock")), "http://koordlet/metrics")
}

// figure is the sum of koordlet's series whose name and labels contain every part.
func (a *agent) figure(parts ...string) float64 {
	a.r.t.Helper()
	m, err := a.figures()
	if err != nil {
		a.r.t.Fatal(err)
	}
	return sum(m, parts...)
}

// ticks waits until koordlet has ticked n times, and looks all the while: an error of hold is a failure.
func (a *agent) ticks(n float64, hold func() error) {
	a.r.t.Helper()
	const counter = `koord_rt_koordlet_loop_duration_seconds_count{loop="tick"}`
	first := a.figure(counter)
	a.r.eventually(30*time.Second, func() error {
		if err := hold(); err != nil {
			a.r.t.Fatal(err)
		}
		m, err := a.figures()
		if done := sum(m, counter) - first; err == nil && done < n {
			err = fmt.Errorf("koordlet has ticked %v times, want %v", done, n)
		}
		return err
	})
}

// quietly is a hold that looks at nothing.
func quietly() error { return nil }

// containerDirs are the directories of a container's cgroup: one, or on v1 one of each controller that counts here, and that of the
// unified hierarchy where the runtime keeps it there as well.
func (r *rig) containerDirs(run *kubelet.Running) (dirs []string) {
	if r.tree.V2() {
		return []string{r.kube.ContainerDir(run, "main", "")}
	}
	seen := map[string]bool{}
	for _, ctrl := range []string{"cpu", "cpuacct", "cpuset", "memory"} {
		dir, err := filepath.EvalSymlinks(r.kube.ContainerDir(run, "main", ctrl))
		if err != nil {
			r.t.Fatal(err)
		}
		if !seen[dir] {
			dirs = append(dirs, dir)
		}
		seen[dir] = true
	}
	if dir := r.kube.ContainerDir(run, "main", ""); dir != "" {
		if _, err := os.Stat(dir); err == nil {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// tierQuota is the CPU quota of the best-effort class in milli-CPUs, as the kernel has it; -1 for none.
func (r *rig) tierQuota(be *kubelet.Running) (int, error) {
	file, ctrl := "cpu.cfs_quota_us", "cpu"
	if r.tree.V2() {
		file, ctrl = "cpu.max", ""
	}
	return quotaIn(filepath.Dir(r.kube.PodDir(be, ctrl)), file)
}

func quotaIn(dir, file string) (int, error) {
	text, err := cgroups.Read(dir, file)
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(strings.TrimSpace(text), " ")
	if first == "max" {
		return -1, nil
	}
	quota, err := strconv.Atoi(first)
	if quota < 0 {
		return -1, err
	}
	return quota / 100, err
}

// within waits until a figure lies between two bounds.
func (r *rig) within(limit time.Duration, what string, low, high int, read func() (int, error)) (got int) {
	r.t.Helper()
	r.eventually(limit, func() error {
		v, err := read()
		if err == nil && (v < low || v > high) {
			err = fmt.Errorf("%s is %d, want %d to %d", what, v, low, high)
		}
		got = v
		return err
	})
	return got
}

// TestHostSuppress is the closed loop: load, which is stress-ng, comes to an LS pod and the best-effort tier yields, so that the pod keeps
// its CPU while that tier floods the machine; the load goes and the tier gets back what it had; a killed agent leaves what it decided in
// force, and one that is told to stop suppressing takes it back.
func TestHostSuppress(t *testing.T) {
	r := newRig(t, rigOptions{})
	node := 1000 * runtime.NumCPU()
	r.up("", nil)
	// Without a request for CPU its class weighs no more than the best-effort one: what it keeps it owes to suppression.
	asks := openPod("busy-ls", "LS")
	asks.Containers[0].Resources.Requests = map[string]kubelet.Quantity{"memory": "64Mi"}
	ls, be := r.pod(asks), r.pod(openPod("busy-be", "BE"))
	quota := func() (int, error) { return r.tierQuota(be) }
	a := r.koordlet(suppressing("cfsQuota"))
	r.burn(be, 2*runtime.NumCPU())
	r.within(20*time.Second, "quota of the tier on a calm node", node*15/100, node*66/100, quota)
	load := r.stressing(r.containerDirs(ls), "--cpu", strconv.Itoa(runtime.NumCPU()/2), "--cpu-method", "loop")
	// The formula gives 15 % of the node less the system's use; a hypervisor that steals from the LS pod leaves BE some more.
	r.within(20*time.Second, "quota of the tier under load", 20, node*20/100, quota)
	keepsCPU(a, ls, quota)
	a.end(syscall.SIGKILL)
	if got, err := quota(); err != nil || got < 20 || got > node*20/100 {
		r.t.Errorf("the agent was killed: quota %d, %v", got, err)
	}
	a.start()
	load.stop()
	r.within(30*time.Second, "quota of the tier after the load", node*15/100, node*66/100, quota)
	r.quotaMoves()
	a.strategy("resourceUsedThresholdWithBE: {enable: false}\n")
	r.within(20*time.Second, "quota of the tier without suppression", -1, -1, quota)
	a.strategy(suppressing("cfsQuota"))
	r.within(20*time.Second, "quota of the tier that is suppressed again", node*15/100, node*66/100, quota)
	a.strategy(suppressing("cpuset"))
	r.within(20*time.Second, "quota after the change to cpuset", -1, -1, quota)
	if runtime.NumCPU() > 2 { // two CPUs are the least that the tier keeps
		r.within(20*time.Second, "CPUs of the tier", 2, runtime.NumCPU()*66/100+1, func() (int, error) { return r.cpusOf(be) })
	}
	a.strategy("resourceUsedThresholdWithBE: {enable: false}\n")
	r.within(20*time.Second, "CPUs of the tier without suppression", runtime.NumCPU(), runtime.NumCPU(), func() (int, error) { return r.cpusOf(be) })
}

// keepsCPU: of the half of the node that an LS pod would compute on it gets nine tenths at least, by the kernel's count, where the
// others have 5 % of the node and its own work. It is the best of three whiles: the machine has other guests.
func keepsCPU(a *agent, ls *kubelet.Running, quota func() (int, error)) {
	r, node := a.r, 1000*runtime.NumCPU()
	a.strategy(strings.Replace(suppressing("cfsQuota"), ": 65", ": 55", 1))
	r.within(20*time.Second, "quota of the tier at 55 %", 20, node*10/100, quota)
	asked, had := float64(runtime.NumCPU()/2), []float64(nil)
	for len(had) < 3 && (len(had) == 0 || slices.Max(had) < 0.9) {
		before, begun := r.cpuTime(ls), time.Now()
		time.Sleep(3 * time.Second)
		had = append(had, (r.cpuTime(ls)-before)/time.Since(begun).Seconds()/asked)
	}
	r.t.Logf("of the CPUs that stress-ng asks for in the LS pod it has %.3f, while best effort floods the machine", had)
	if slices.Max(had) < 0.9 {
		r.t.Errorf("the LS pod has %.3f of the CPUs that it asks for, want 0.9", had)
	}
	a.strategy(suppressing("cfsQuota"))
	r.within(20*time.Second, "quota of the tier under load", 20, node*20/100, quota)
}

// cpusOf counts the CPUs of a container's cpuset.
func (r *rig) cpusOf(run *kubelet.Running) (int, error) {
	file, ctrl := "cpuset.cpus", "cpuset"
	if r.tree.V2() {
		file, ctrl = "cpuset.cpus.effective", ""
	}
	return cpusIn(r.kube.ContainerDir(run, "main", ctrl), file)
}

func cpusIn(dir, file string) (int, error) {
	text, err := cgroups.Read(dir, file)
	if err != nil {
		return 0, err
	}
	set, err := topo.ParseCPUSet(strings.TrimSpace(text))
	return set.Len(), err
}

// openPod has no limit.
func openPod(name, class string) kubelet.Pod {
	p := kubelet.Pod{
		Name: name, UID: uid(name), Labels: map[string]string{"koordinator.sh/qosClass": class},
		Containers: []kubelet.Container{{Name: "main"}},
	}
	if class != "BE" {
		p.Containers[0].Resources.Requests = map[string]kubelet.Quantity{"cpu": "100m"}
	}
	return p
}
