"use strict";
// Reloads #live every few seconds while the page is visible. The rest of the page stays, so that
// forms keep their input.
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
				tell("Live: reloads every 5 seconds");
			} else {
				tell("The page cannot reload. It shows the state of " + last);
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
		pause.textContent = paused ? "Resume" : "Pause";
		tell(paused ? "Paused" : "Live: reloads every 5 seconds");
		if (paused && asking) asking.abort();
		paused ? plan() : read();
	});
	document.addEventListener("visibilitychange", () => {
		clearTimeout(timer);
		if (!paused && !asking && document.visibilityState === "visible") read();
	});
	tell("Live: reloads every 5 seconds");
	plan();
})();
