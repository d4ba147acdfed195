// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package run

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// Notifier tells systemd the service's state: sd_notify(3), datagrams of VARIABLE=VALUE lines to $NOTIFY_SOCKET.
type Notifier struct {
	addr     *net.UnixAddr
	interval time.Duration
}

// NewNotifier takes getenv (os.Getenv) for NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID; without them every method is
// a no-op.
func NewNotifier(getenv func(string) string) *Notifier {
	n := &Notifier{}
	name := getenv("NOTIFY_SOCKET")
	if !strings.HasPrefix(name, "/") && !strings.HasPrefix(name, "@") {
		return n
	}
	n.addr = &net.UnixAddr{Name: name, Net: "unixgram"}
	pid := getenv("WATCHDOG_PID")
	usec, err := strconv.ParseInt(getenv("WATCHDOG_USEC"), 10, 64)
	if err == nil && usec > 0 && usec < int64(24*time.Hour/time.Microsecond) && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		n.interval = time.Duration(usec) * time.Microsecond
	}
	return n
}

// Ready tells that the daemon serves.
func (n *Notifier) Ready() error { return n.send("READY=1") }

// Stopping tells that the daemon ends.
func (n *Notifier) Stopping() error { return n.send("STOPPING=1") }

// Watchdog pings twice an interval until ctx ends, and leaves a ping out when healthy, which may be nil, has an error: systemd restarts
// a daemon that stops pinging. A ping that cannot be sent is logged, the first of several only, and is systemd's to judge too: it is no
// reason to end a daemon that works. Without a watchdog Watchdog only waits.
func (n *Notifier) Watchdog(ctx context.Context, log *slog.Logger, healthy func() error) error {
	if n.interval <= 0 {
		<-ctx.Done()
		return nil
	}
	t := time.NewTicker(n.interval / 2)
	defer t.Stop()
	for unsent := false; ; {
		if healthy == nil || healthy() == nil {
			err := n.send("WATCHDOG=1")
			if err != nil && !unsent {
				log.Warn("ping the watchdog", "err", err)
			}
			unsent = err != nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}

// sendLimit bounds the wait for room in the socket's queue, which is somebody else's to read.
const sendLimit = 2 * time.Second

func (n *Notifier) send(state string) error {
	if n.addr == nil {
		return nil
	}
	c, err := net.DialUnix("unixgram", nil, n.addr)
	if err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	defer c.Close()
	if err := c.SetWriteDeadline(time.Now().Add(sendLimit)); err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	if _, err := c.Write([]byte(state)); err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	return nil
}
