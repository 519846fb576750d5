"use strict";
// Reads the page again every few seconds while it is looked at, and shows what is in #live. Everything else stays: forms keep what was typed.
(() => {
	const every = 5000;
	const state = document.getElementById("state");
	const pause = document.getElementById("pause");
	let paused = false, timer = 0, asking = null;

	const disturbs = () => {
		const live = document.getElementById("live"), selection = getSelection();
		return live.contains(document.activeElement) || !selection.isCollapsed && live.contains(selection.anchorNode);
	};

	const plan = () => {
		clearTimeout(timer);
		if (!paused && document.visibilityState === "visible") timer = setTimeout(read, every);
	};

	const tell = (text) => { state.textContent = text; };

	function read() {
		if (disturbs()) return plan();
		asking = new XMLHttpRequest();
		asking.open("GET", location.href);
		asking.responseType = "document";
		asking.timeout = 20000;
		asking.onloadend = () => {
			const answer = asking, now = answer.response && answer.response.getElementById("live");
			asking = null;
			if (paused) return;
			if (answer.status === 200 && now) {
				if (!disturbs()) document.getElementById("live").replaceWith(now);
				tell("Live: read every 5 seconds");
			} else {
				tell("No answer since " + last + ": what is shown is of that time");
			}
			if (answer.status === 200) last = clock();
			plan();
		};
		asking.send();
	}

	const clock = () => new Date().toLocaleTimeString();
	let last = clock();

	pause.hidden = false;
	pause.addEventListener("click", () => {
		paused = !paused;
		pause.textContent = paused ? "Go on" : "Pause";
		tell(paused ? "Paused" : "Live: read every 5 seconds");
		if (paused && asking) asking.abort();
		paused ? plan() : read();
	});
	document.addEventListener("visibilitychange", () => {
		clearTimeout(timer);
		if (!paused && !asking && document.visibilityState === "visible") read();
	});
	tell("Live: read every 5 seconds");
	plan();
})();
