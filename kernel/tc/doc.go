// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package tc divides a link's bandwidth by the kernel's traffic control, over rtnetlink and without the tc program.
//
//	egress    HTB 4b52: in the place of the link's root qdisc
//	ingress   clsact on the link, all of it redirected to an IFB device krt<ifindex>, and the same HTB there
//	classes   1 all; 2 system (default); 3 LSR, 4 LS, 5 BE, each with a leaf 13, 14, 15 for pods without a limit of their own;
//	          100 … for pods with one
//	filters   u32, hashed by the last byte of the pod's address: its source on egress, its destination on ingress
//
// Nothing is kept in this process: what is ours is known by the handle 4b52 ("KR"), by the filter's preference 4b52 and by the
// device's name, so a process that is killed at any point is followed by one that goes on from there. A link whose root qdisc or
// ingress somebody else has set up is refused, unless that is a classless qdisc, which can be put back from its own dump.
//
// Input are shapes and pods (model/shape), output is what changed. It imports model/shape, model/unit, kernel/netlink, kernel/root,
// golang.org/x/sys/unix and the standard library. Kernel documents: Documentation/netlink/specs/tc.yaml, rt-link.yaml, rt-route.yaml;
// include/uapi/linux/pkt_sched.h, pkt_cls.h; tc-htb(8), tc-u32(8).
package tc
