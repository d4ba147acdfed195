// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Command parts builds parts of the test lab into the cache and prints "name folder"
// per part on standard output; progress goes to standard error.
//
//	go run ./test/lab/cmd/parts containerd-2.4 runc crictl image
//
// "test" stands for what make test compiles or installs, "vm" for what its virtual machines
// boot, "all" for everything. With -fetch, parts that are compiled are only downloaded.
// Without arguments it lists the names.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/koord-rt/koord-rt/test/lab/docker"
	"github.com/koord-rt/koord-rt/test/lab/parts"
	"github.com/koord-rt/koord-rt/test/lab/vmparts"
)

// Groups of parts, and the two parts that other packages make.
const (
	groupTest  = "test"
	groupVM    = "vm"
	groupAll   = "all"
	partDocker = "docker"
)

func main() {
	fetch := flag.Bool("fetch", false, "only download what is compiled, and go on after errors: the build will report them")
	while := flag.Int("while", 0, "end when the process of this number has ended")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *while > 0 {
		go endWith(*while, stop)
	}
	if err := run(ctx, *fetch, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "parts:", err)
		os.Exit(1)
	}
}

// endWith calls stop when a process is gone. It need not be this one's parent, so there is nothing to wait on.
func endWith(pid int, stop func()) {
	for syscall.Kill(pid, 0) == nil {
		time.Sleep(time.Second)
	}
	stop()
}

func run(ctx context.Context, fetch bool, names []string) error {
	if len(names) == 0 {
		for _, n := range append([]string{groupTest, groupVM, groupAll, partDocker}, parts.Names()...) {
			fmt.Println(n)
		}
		return nil
	}
	cache, err := parts.Open(parts.Options{Progress: os.Stderr})
	if err != nil {
		return err
	}
	var failed []error
	for _, n := range expand(names) {
		err := one(ctx, cache, fetch, n)
		if err != nil && (!fetch || ctx.Err() != nil) {
			return err
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// expand replaces groups by their parts, in the order in which make test wants them.
func expand(names []string) []string {
	var out []string
	for _, n := range names {
		switch n {
		case groupTest:
			out = append(out, parts.Containerd24, parts.Runc, parts.Image, parts.Crictl, parts.Containerd17, parts.Containerd17CDI, parts.Containerd20)
			out = append(append(out, parts.NRIRuntimeNames()...), parts.Containerd16, partDocker, parts.Critest, parts.DockerRegistry, parts.CNI,
				parts.Etcd, parts.KubeAPIServer, parts.Kubelet, parts.Kubectl, parts.KubeScheduler, parts.StressNG, parts.IPRoute2)
		case groupAll:
			out = append(append(out, parts.Names()...), partDocker, groupVM)
		default:
			out = append(out, n)
		}
	}
	return out
}

// one builds or fetches a part and prints where it is.
func one(ctx context.Context, cache *parts.Cache, fetch bool, name string) (err error) {
	dir := ""
	switch {
	case name == groupVM:
		return virtualMachine(ctx, cache)
	case name == partDocker:
		dir, err = docker.Part(ctx, cache)
	case fetch:
		return cache.Fetch(ctx, name)
	default:
		dir, err = cache.Get(ctx, name)
	}
	if err != nil {
		return err
	}
	fmt.Println(name, dir)
	return nil
}

// virtualMachine downloads and unpacks emulator, kernels and root filesystems.
func virtualMachine(ctx context.Context, cache *parts.Cache) error {
	store, err := vmparts.Open(cache)
	if err != nil {
		return err
	}
	emulator, err := store.Emulator(ctx)
	if err != nil {
		return err
	}
	fmt.Println("qemu", emulator.Version)
	for _, series := range []string{"6.12", "6.1", "7.2"} {
		kernel, err := store.Kernel(ctx, series)
		if err != nil {
			return err
		}
		fmt.Println("kernel", kernel.Release)
	}
	for name, get := range map[string]func(context.Context) (string, error){"busybox": store.Busybox, "rootfs": store.Rootfs, "containerd-too-old": store.ContainerdTooOld} {
		path, err := get(ctx)
		if err != nil {
			return err
		}
		fmt.Println(name, path)
	}
	return nil
}
