// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/cgroups"
	"github.com/koord-rt/koord-rt/test/lab/host"
	"github.com/koord-rt/koord-rt/test/lab/kubelet"
)

// demo is one run; the fields fill up as it goes on, and close takes back whatever is there.
type demo struct {
	screen *screen
	start  time.Time
	hold   bool
	crictl string
	tree   cgroups.Tree
	host   *host.Host
	kube   *kubelet.Kubelet
	dir    string // the lab's folder
	root   string // the lab's cgroup, set with dir
	plugin *process
	agent  *process
}

// run is the demo from top to bottom.
func (d *demo) run(ctx context.Context) error {
	ids, err := cpus()
	if err != nil {
		return err
	}
	m := machine{cpus: ids, disk: wholeDisk("/sys", "/dev")}
	d.screen.title("koord-rt: three pods without and with koord-nri, then koordlet under load")
	if err := d.startNode(ctx); err != nil {
		return err
	}
	version := "v1"
	if d.tree.V2() {
		version = "v2"
	}
	d.step("Linux %s, cgroup %s, %d CPUs; a private containerd runs in %s", kernelRelease(), version, len(m.cpus), d.dir)
	d.screen.line("")
	for _, p := range pods(m) {
		d.screen.line("  %-9s class %-4s %s", p.Name+"/"+p.Containers[0].Name, p.Labels["koordinator.sh/qosClass"], promise(p))
	}
	before, err := d.without(ctx, m)
	if err != nil {
		return err
	}
	return d.with(ctx, m, before)
}

// step says what was done, and when since the start.
func (d *demo) step(format string, args ...any) {
	d.screen.line("%s %s", d.screen.paint(dim, fmt.Sprintf("[%5.1f s]", time.Since(d.start).Seconds())), fmt.Sprintf(format, args...))
}

// without creates the pods on plain containerd, reads the kernel and removes them.
func (d *demo) without(ctx context.Context, m machine) (reading, error) {
	d.screen.title("1. Without koord-nri")
	running, err := d.create(ctx, m)
	if err != nil {
		return nil, err
	}
	before, err := d.read(ctx, running)
	if err != nil {
		return nil, err
	}
	if err := d.stop(ctx, running); err != nil {
		return nil, err
	}
	d.step("3 pods created as the kubelet does, %d values read from the kernel, pods removed", len(before))
	d.screen.line("  containerd knows nothing of the labels and annotations above: all three got what the kubelet asked for.")
	return before, nil
}

func (d *demo) create(ctx context.Context, m machine) ([]*kubelet.Running, error) {
	var out []*kubelet.Running
	for _, p := range pods(m) {
		r, err := d.kube.StartPod(ctx, p)
		if err != nil {
			return nil, fmt.Errorf("start pod %s: %w", p.Name, err)
		}
		out = append(out, r)
	}
	return out, nil
}

// with creates the same pods beside koord-nri and shows what has become of them.
func (d *demo) with(ctx context.Context, m machine, before reading) error {
	d.screen.title("2. With koord-nri")
	if err := d.startPlugin(ctx); err != nil {
		return err
	}
	d.step("koord-nri is connected, with a NodeSLO of %d lines as strategy file", strings.Count(strategyFile, "\n"))
	begin := time.Now()
	running, err := d.create(ctx, m)
	if err != nil {
		return fmt.Errorf("%w\nkoord-nri:\n%s", err, d.plugin.tail())
	}
	took := time.Since(begin)
	settings, err := d.settled(ctx)
	if err != nil {
		return err
	}
	now, err := d.read(ctx, running)
	if err != nil {
		return err
	}
	d.step("the same 3 pods created in %.1f s, read from the kernel again", took.Seconds())
	for _, r := range running {
		d.compare(r, before, now, settings)
	}
	if err := d.inspect(ctx, running[1]); err != nil {
		return err
	}
	if err := d.show(ctx, "4. Ask koordctl: who did this?", "explain", "default/"+running[2].Pod.Name); err != nil {
		return err
	}
	if err := d.show(ctx, "5. What works on this machine", "features"); err != nil {
		return err
	}
	if err := d.stop(ctx, running); err != nil {
		return err
	}
	if err := d.loop(ctx, m); err != nil || !d.hold {
		return err
	}
	if err := d.again(ctx, m); err != nil {
		return err
	}
	d.wait(ctx)
	return nil
}

// stop removes pods.
func (d *demo) stop(ctx context.Context, running []*kubelet.Running) error {
	for _, r := range running {
		if err := d.kube.StopPod(ctx, r); err != nil {
			return fmt.Errorf("stop pod %s: %w", r.Pod.Name, err)
		}
	}
	return nil
}

// again creates the three pods once more, for those who want to look around.
func (d *demo) again(ctx context.Context, m machine) error {
	if _, err := d.create(ctx, m); err != nil {
		return err
	}
	_, err := d.settled(ctx)
	return err
}

// wait leaves everything as it is until the user has seen enough.
func (d *demo) wait(ctx context.Context) {
	d.screen.title("Everything runs until Ctrl-C. In another terminal:")
	d.screen.command(fmt.Sprintf("bin/koordctl --run-dir %s diff --all", d.runDir()))
	d.screen.command(fmt.Sprintf("%s --runtime-endpoint unix://%s ps", d.crictl, d.host.Socket))
	d.screen.command("less " + d.logFile())
	<-ctx.Done()
}

// show prints a koordctl command and its own output.
func (d *demo) show(ctx context.Context, title string, args ...string) error {
	out, err := d.ctl(ctx, args...)
	if err != nil {
		return err
	}
	d.screen.title(title)
	d.screen.command("koordctl " + strings.Join(args, " "))
	_, err = d.screen.out.Write(out)
	return err
}

func (d *demo) ctl(ctx context.Context, args ...string) ([]byte, error) {
	return output(ctx, binary("koordctl"), append([]string{"--run-dir", d.runDir()}, args...)...)
}

// close takes everything back, whatever state the demo is in, and looks whether anything is left.
func (d *demo) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute) // two daemons may take half a minute each to end
	defer cancel()
	errs := []error{d.agent.stop()}
	if d.kube != nil {
		errs = append(errs, d.kube.Cleanup(ctx))
	}
	errs = append(errs, d.plugin.stop())
	if d.host != nil {
		if _, err := os.Stat(d.runDir()); err == nil {
			// Node-wide things such as resctrl groups; those of pods went with the pods.
			_, err := d.ctl(ctx, "restore")
			errs = append(errs, err)
		}
		errs = append(errs, d.host.Close())
	}
	return errors.Join(append(errs, d.remains())...)
}

// remains looks at what would be left if the clean-up had failed.
func (d *demo) remains() error {
	if d.dir == "" {
		return nil
	}
	var errs []error
	paths := []string{d.dir}
	for _, mount := range d.tree.Mounts() {
		paths = append(paths, filepath.Join(mount, d.root))
	}
	for _, p := range paths {
		if _, err := os.Stat(p); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("%s is still there", p))
		}
	}
	return errors.Join(errs...)
}

// farewell is the last line.
func (d *demo) farewell(left error) { d.bye(left, "Pods, containerd, koord-nri, koordlet") }

func (d *demo) bye(left error, what string) {
	took := time.Since(d.start).Seconds()
	if left != nil {
		d.screen.line("\nDone after %.1f s, but not everything could be removed.", took)
		return
	}
	d.screen.line("\n%s", d.screen.paint(green, fmt.Sprintf("Done in %.1f s. %s, their cgroups and files are gone.", took, what)))
}
