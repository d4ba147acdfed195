// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Command server is the one program in the images that critest runs, beside busybox.
// Its name decides what it does:
//
//	nginx, httpd  a web server, with -listen, -pidfile, -title and -say
//	nonewprivs    prints its effective user
//	pause         holds a pod's namespaces and reaps what is left to it
//	pgrep, ipcs   what critest asks of these and Debian's busybox lacks
//
// Input: name and arguments. Output: pages or text. It imports the standard library only.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

func main() {
	if err := run(filepath.Base(os.Args[0]), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "server:", err)
		os.Exit(1)
	}
}

func run(name string, args []string) error {
	switch name {
	case "nonewprivs":
		fmt.Printf("Effective uid: %d\n", os.Geteuid())
		return nil
	case "pause":
		pause()
		return nil
	case "pgrep":
		return pgrep(args)
	case "ipcs":
		return sharedMemory(os.Stdout, "/proc/sysvipc/shm")
	default:
		return serve(args)
	}
}

// pause waits for the end of the pod. As process 1 of a shared process namespace it
// would be left the dead; who ignores SIGCHLD has none: wait(2).
func pause() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	signal.Ignore(syscall.SIGCHLD)
	<-end
}

// serve answers every request with a short page. The process file is written once the
// port is open.
func serve(args []string) error {
	flags := flag.NewFlagSet("server", flag.ContinueOnError)
	listen := flags.String("listen", ":80", "TCP address")
	pidfile := flags.String("pidfile", "", "file that gets the process id")
	say := flags.String("say", "", "line to print at the start")
	flags.String("title", "", "text that only has to stand in the command line")
	if err := flags.Parse(args); err != nil {
		return err
	}
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if *say != "" {
		fmt.Println(*say)
	}
	if *pidfile != "" {
		if err := os.WriteFile(*pidfile, []byte(fmt.Sprintln(os.Getpid())), 0o644); err != nil {
			return fmt.Errorf("write process id: %w", err)
		}
	}
	return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "koord-rt test page\n") // a client that left is no error of the server
	}))
}

// pgrep prints the ids of the processes whose name contains the argument.
func pgrep(args []string) error {
	if len(args) != 1 {
		return errors.New("pgrep: want one name")
	}
	files, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	found := false
	for _, f := range files {
		comm, err := os.ReadFile(f)
		if err != nil || !strings.Contains(string(comm), args[0]) {
			continue // gone, or another
		}
		if pid := filepath.Base(filepath.Dir(f)); pid != fmt.Sprint(os.Getpid()) {
			fmt.Println(pid)
			found = true
		}
	}
	if !found {
		os.Exit(1)
	}
	return nil
}

// sharedMemory prints the ids of the shared memory segments of this IPC namespace.
// Format: proc(5), /proc/sysvipc; the second column is the id.
func sharedMemory(w io.Writer, path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read segments: %w", err)
	}
	fmt.Fprintln(w, "shmid")
	for i, line := range strings.Split(string(data), "\n") {
		if f := strings.Fields(line); i > 0 && len(f) > 1 {
			fmt.Fprintln(w, f[1])
		}
	}
	return nil
}
